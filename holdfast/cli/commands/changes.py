"""What a session did, and its messages once more: changes, timeline and resend."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.messages import MessageName, find_message
from holdfast.cli.output import AsJson, SessionName, clean, emit, emit_table, moment


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (changes, timeline, resend):
        app.command()(command)


def changes(
    session: SessionName,
    since: Annotated[
        str, typer.Option(help="start, run (the last one) or checkpoint:ID")
    ] = "start",
    diff: Annotated[bool, typer.Option("--diff", "-d", help="Show what changed inside.")] = False,
    path: Annotated[str | None, typer.Option(help="Only this file; with --diff.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the files that a session changed in its folder, also by shell commands."""
    from holdfast.cli.connection import connect

    with connect() as client:
        place = f"/sessions/{client.session(session)['id']}/changes"
        if diff or path is not None:
            wanted = {"since": since, "path": path}
            text = client.request("GET", f"{place}/diff", params=wanted)
            emit({"diff": text}, as_json=as_json, text=clean(text).rstrip("\n"))
            return
        found = client.get(place, since=since)
    rows = [(one["status"], _lines(one), clean(one["path"])) for one in found["items"]]
    rows += [("not compared", "", clean(name)) for name in found["not_compared"]]
    columns = ("what", "lines", "path")
    if rows or as_json:
        emit_table(found, as_json=as_json, columns=columns, rows=rows)
    else:
        typer.echo(found["note"] or "nothing changed")


def timeline(session: SessionName, as_json: AsJson = False) -> None:
    """Show what ran when, inside of what, and what it took: the last 50 runs."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.get(f"/sessions/{client.session(session)['id']}/timeline")
    depths: dict[str, int] = {}
    rows = []
    for span in found["items"]:
        depths[span["id"]] = depth = depths.get(span["parent"] or "", -1) + 1
        label = clean(f"{'  ' * depth}{span['kind']} {span['label']}")
        rows.append((moment(span["start"]), _duration(span), span["state"], label))
    columns = ("begin", "took", "state", "what")
    emit_table(found, as_json=as_json, columns=columns, rows=rows)


def resend(
    session: SessionName,
    message: MessageName,
    content: Annotated[str | None, typer.Argument(help="Other words than before.")] = None,
    restore_files: Annotated[
        bool, typer.Option("--restore-files", help="Bring the work tree back too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go back to right before a message and send it again, edited or not."""
    from holdfast.cli.connection import connect

    with connect() as client:
        session_id = client.session(session)["id"]
        message_id = find_message(client, session_id, message)
        body = {"content": content, "restore_files": restore_files}
        answer = client.post(f"/sessions/{session_id}/messages/{message_id}/resend", body)
    state = answer["session"]["state"]
    emit(answer, as_json=as_json, text=f"sent again as {answer['message']['id']}: {state}")


def _lines(file: dict[str, Any]) -> str:
    return "binary" if file["binary"] else f"+{file['additions']} -{file['deletions']}"


def _duration(span: dict[str, Any]) -> str:
    return "…" if span["end"] is None else f"{(span['end'] - span['start']) / 1000:.1f} s"
