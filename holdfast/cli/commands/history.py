"""What happened: a session's audit log, live if wanted, and the chain of causes of one event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.output import AsJson, SessionName, clean, emit, moment

if TYPE_CHECKING:
    from holdfast.client.client import Client
    from holdfast.client.frames import Frame


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(log)
    app.command()(trace)


def log(
    session: SessionName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it happens.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a session's audit log, oldest first; with --json one event a line."""
    from holdfast.cli.connection import connect

    with connect() as client:
        session_id = client.session(session)["id"]
        last = _catch_up(client, session_id, 0, as_json=as_json)
        if not follow:
            return
        for frame in client.stream(session_id):
            if frame.type == "welcome":
                # What happened before this connection stood, the first or another.
                last = _catch_up(client, session_id, last, as_json=as_json)
            elif frame.channel == "events" and (frame.seq or 0) > last:
                last = frame.seq or last
                _print(_line(_as_listed(frame, session_id), as_json=as_json))


def trace(
    session: SessionName,
    event: Annotated[str | None, typer.Option(help="The event to explain.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what led to an event, or the whole chain of a session."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get(f"/sessions/{client.session(session)['id']}/trace", event=event)
    lines = [f"{one['seq']:>6}  {one['summary']}" for one in answer["items"]]
    emit(answer, as_json=as_json, text=clean("\n".join(lines)))


def _catch_up(client: Client, session_id: str, last: int, *, as_json: bool) -> int:
    """Print what came after `last`; the newest seq."""
    while events := client.items(f"/sessions/{session_id}/events", since=last):
        for event in events:
            last = max(last, int(event["seq"]))
            _print(_line(event, as_json=as_json))
    return last


def _as_listed(frame: Frame, session_id: str) -> dict[str, Any]:
    """The event in the shape that the list has."""
    data = dict(frame.payload)
    return {
        "id": data.pop("event_id", None),
        "session_id": session_id,
        "seq": frame.seq,
        "type": frame.type,
        "at": data.pop("at", None),
        "data": data,
    }


def _line(event: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event, ensure_ascii=False)
    data = json.dumps(event["data"], ensure_ascii=False)
    return clean(f"{event['seq']:>6}  {moment(event.get('at'))}  {event['type']}  {data}")


def _print(line: str) -> None:
    typer.echo(line)
