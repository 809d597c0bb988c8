"""Pause points: checkpoint, resume, rollback, fork, compare and compact."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.messages import MessageOption, find_message
from holdfast.cli.output import AsJson, SessionName, ago, clean, emit, emit_table
from holdfast.client.errors import ClientError

CheckpointId = Annotated[
    str | None, typer.Option("--checkpoint", help="Not the current or newest one, but this.")
]


CHANGED = ("restored", "deleted")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (checkpoint, checkpoints, resume, rollback, fork, compact):
        app.command()(command)
    app.command("diff")(compare)


def checkpoint(
    session: SessionName,
    reason: Annotated[str, typer.Option(help="Why it pauses here.")] = "asked for by the operator",
    as_json: AsJson = False,
) -> None:
    """Pause a running session at once; nothing further starts until it is resumed."""
    from holdfast.cli.connection import connect

    with connect() as client:
        path = f"/sessions/{client.session(session)['id']}/checkpoints"
        answer = client.post(path, {"reason": reason})
    emit(answer, as_json=as_json, text=f"paused at {answer['id']}")


def checkpoints(session: SessionName, as_json: AsJson = False) -> None:
    """List a session's checkpoints, newest first."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = _all(client, client.session(session)["id"])
    rows = [(one["id"], one["created_by"], ago(one["created_at"]), one["reason"]) for one in found]
    emit_table(found, as_json=as_json, columns=("id", "by", "made", "reason"), rows=rows)


def resume(
    session: SessionName,
    message: Annotated[
        str | None, typer.Argument(help="Words for the model: the answer to what it asked.")
    ] = None,
    checkpoint_id: CheckpointId = None,
    compaction: Annotated[
        str | None, typer.Option(help="approve or reject a pending compaction")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a session: from its checkpoint when paused, with its message when queued."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.session(session)
        path = f"/sessions/{found['id']}"
        if found["state"] != "queued":
            chosen = checkpoint_id or _current(found)
            path += f"/checkpoints/{chosen}"
        elif message is not None:
            raise typer.BadParameter("the session is queued: nothing was asked yet")
        wanted = {"compaction": compaction, "message": message}
        answer = client.post(
            f"{path}/resume", {name: word for name, word in wanted.items() if word is not None}
        )
    emit(answer, as_json=as_json, text=str(answer.get("state") or answer["session"]["state"]))


def rollback(
    session: SessionName,
    checkpoint_id: CheckpointId = None,
    message: MessageOption = None,
    restore_files: Annotated[
        bool, typer.Option("--restore-files", help="Bring the work tree back too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go back to a checkpoint or to a message: what was said since then is superseded."""
    from holdfast.cli.connection import connect

    if checkpoint_id and message:
        raise typer.BadParameter("--checkpoint or --message, not both")
    with connect() as client:
        found = client.session(session)
        path = f"/sessions/{found['id']}"
        body: dict[str, Any] = {"restore_files": restore_files}
        if message is not None:
            body["message_id"] = find_message(client, found["id"], message)
        else:
            path += f"/checkpoints/{checkpoint_id or _current(found, or_newest_of=client)}"
        answer = client.post(f"{path}/rollback", body)
    emit(answer, as_json=as_json, text=_told(answer))


def fork(
    session: SessionName,
    checkpoint_id: CheckpointId = None,
    head: Annotated[str | None, typer.Option(help="Fork from this head.")] = None,
    message: MessageOption = None,
    title: Annotated[str | None, typer.Option()] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new session that begins where this one stands, or stood."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.session(session)
        fields = {
            "resume_from": found["id"],
            "checkpoint_id": checkpoint_id,
            "head_id": head,
            "message_id": find_message(client, found["id"], message) if message else None,
            "title": title,
        }
        chosen = {key: value for key, value in fields.items() if value is not None}
        made = client.create(found["project_id"], **chosen)
    emit(made, as_json=as_json, text=made["id"])


def _told(answer: dict[str, Any]) -> str:
    """What a rollback did, in words."""
    words = [f"{answer['messages_superseded']} messages superseded"]
    files = answer.get("files", {})
    words += [f"{len(files[name])} files {name}" for name in CHANGED if files.get(name)]
    lines = [", ".join(words), *(f"not undone: {one}" for one in files.get("not_undone", []))]
    return clean("\n".join(lines))


def compare(session: SessionName, other: SessionName, as_json: AsJson = False) -> None:
    """Compare two sessions, for example a fork with its source: where they part, then each."""
    from holdfast.cli.connection import connect
    from holdfast.cli.rendering import history_line

    with connect() as client:
        ids = client.session(session)["id"], client.session(other)["id"]
        answer = client.get(f"/sessions/{ids[0]}/compare/{ids[1]}")
    common = answer["common"]
    lines = ["  nothing in common" if common is None else f"  alike up to {common['message_seq']}"]
    lines += [f"- {history_line(message)}" for message in answer["a"]["messages"]]
    lines += [f"+ {history_line(message)}" for message in answer["b"]["messages"]]
    emit(answer, as_json=as_json, text="\n".join(lines))


def compact(
    session: SessionName,
    strategy: Annotated[str | None, typer.Option(help="drop, summarize or delegate")] = None,
    focus: Annotated[str | None, typer.Option(help="what a summary keeps above all")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a session's context shorter now."""
    from holdfast.cli.connection import connect

    with connect(timeout_s=180.0) as client:
        path = f"/sessions/{client.session(session)['id']}/compact"
        wanted = {"strategy": strategy, "focus": focus}
        answer = client.post(path, {name: value for name, value in wanted.items() if value})
    emit(answer, as_json=as_json, text=f"compacted: {answer['id']}")


def _all(client: Any, session_id: str) -> list[Any]:
    found: list[Any] = client.items(f"/sessions/{session_id}/checkpoints")
    return sorted(found, key=lambda one: str(one["id"]), reverse=True)


def _current(session: dict[str, Any], *, or_newest_of: Any = None) -> str:
    current = session.get("current_checkpoint")
    if isinstance(current, dict):
        current = current["id"]
    if current is None and or_newest_of is not None:
        found = _all(or_newest_of, session["id"])
        current = found[0]["id"] if found else None
    if current is None:
        raise ClientError("this session has no checkpoint to go to")
    return str(current)
