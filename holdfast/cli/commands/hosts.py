"""Hosts: the machines of a fleet, which of them take new sessions, and who works where."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.output import AsJson, SessionName, ago, emit, emit_table
from holdfast.client.errors import ClientError

app = typer.Typer(invoke_without_command=True)
HostName = Annotated[str, typer.Argument(help="A host by name or id.")]
COLUMNS = ("id", "name", "state", "sessions", "terminals", "seen", "version")


@app.callback(invoke_without_command=True)
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """List the machines that sessions work on."""
    from holdfast.cli.connection import connect

    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.items("/hosts")
    rows = [
        (
            one["id"],
            one["name"],
            one["state"],
            str(one["sessions"]),
            str(one["terminals"]),
            ago(one["seen_at"]),
            one["version"],
        )
        for one in found
    ]
    emit_table(found, as_json=as_json, columns=COLUMNS, rows=rows)


@app.command("drain")
def drain(host: HostName, as_json: AsJson = False) -> None:
    """Place no new sessions on a host; those that it has go on."""
    _turn(host, "drain", as_json=as_json)


@app.command("undrain")
def undrain(host: HostName, as_json: AsJson = False) -> None:
    """Place new sessions on a host again."""
    _turn(host, "undrain", as_json=as_json)


@app.command("move")
def move(session: SessionName, host: HostName, as_json: AsJson = False) -> None:
    """Have an idle or paused session go on on another host, which must have its folder."""
    from holdfast.cli.connection import connect

    with connect() as client:
        target = _host(client, host)["id"]
        path = f"/sessions/{client.session(session)['id']}/move"
        answer = client.post(path, {"host_id": target})
    emit(answer, as_json=as_json, text=f"{answer['id']} is on {answer['host']['name']}")


def _turn(host: str, how: str, *, as_json: bool) -> None:
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.post(f"/hosts/{_host(client, host)['id']}/{how}")
    emit(answer, as_json=as_json, text=f"{answer['name']} is {answer['state']}")


def _host(client: Any, name: str) -> dict[str, Any]:
    """The one host of this id or name."""
    found: list[dict[str, Any]] = client.items("/hosts")
    named = [one for one in found if name in (one["id"], one["name"])]
    if len(named) != 1:
        how = "no host" if not named else f"{len(named)} hosts"
        raise ClientError(f"{how} of the name {name}; `holdfast hosts` lists them with their ids")
    return named[0]
