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
    items = answer.get("items", answer) if isinstance(answer, dict) else answer
    lines = [_line(one, as_json=False) for one in items] if isinstance(items, list) else []
    emit(answer, as_json=as_json, text="\n".join(lines) or json.dumps(answer, indent=2))


def _line(event: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event, ensure_ascii=False)
    kind = event.get("type") or event.get("kind")
    data = event.get("data") or event.get("payload") or {}
    return clean(f"{event.get('seq', '-'):>6}  {kind}  {json.dumps(data, ensure_ascii=False)}")


def _print(line: str) -> None:
    typer.echo(line)
