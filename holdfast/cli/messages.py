"""How people name a message of a session: by its id, or as the last one that they sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.client.errors import ClientError

if TYPE_CHECKING:
    from holdfast.client.client import Client

LAST = "last"
LOOKED_AT = 200
MessageName = Annotated[str, typer.Argument(help="A message's id, or: last, your last one.")]
MessageOption = Annotated[
    str | None,
    typer.Option("--message", help="Right before this message of yours: its id, or: last."),
]


def find_message(client: Client, session_id: str, name: str) -> str:
    """The id that is meant."""
    if name != LAST:
        return name
    path = f"/sessions/{session_id}/messages"
    found = client.get(path, before="latest", limit=LOOKED_AT)["items"]
    for message in reversed(found):
        if message["role"] == "operator":
            return str(message["id"])
    raise ClientError("the session has no message of yours")
