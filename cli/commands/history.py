"""What happened: a session's audit log, live if wanted, and the chain of causes of one event."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cli.output import AsJson, SessionName, clean, emit


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
    from cli.connection import connect

    with connect() as client:
        session_id = client.session(session)["id"]
        last = 0
        for event in client.items(f"/sessions/{session_id}/events"):
            last = max(last, int(event["seq"]))
            _print(_line(event, as_json=as_json))
        if not follow:
            return
        stream = client.stream(session_id)
        for frame in stream:
            if frame.channel == "events" and (frame.seq or 0) > last:
                event = {"seq": frame.seq, "type": frame.type, "data": frame.payload}
                _print(_line(event, as_json=as_json))


def trace(
    session: SessionName,
    event: Annotated[str | None, typer.Option(help="The event to explain.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what led to an event, or the whole chain of a session."""
    from cli.connection import connect

    with connect() as client:
        answer = client.get(f"/sessions/{client.session(session)['id']}/trace", event=event)
    lines = [f"{one['seq']:>6}  {one['summary']}" for one in answer["items"]]
    emit(answer, as_json=as_json, text=clean("\n".join(lines)))


def _line(event: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event, ensure_ascii=False)
    data = json.dumps(event["data"], ensure_ascii=False)
    return clean(f"{event['seq']:>6}  {event['type']}  {data}")


def _print(line: str) -> None:
    typer.echo(line)
