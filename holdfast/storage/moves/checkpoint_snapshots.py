"""What a checkpoint shows of the work that it interrupted, and how the wire shows a checkpoint."""

from __future__ import annotations

import contextlib
import json
from typing import Any, NotRequired

from sqlalchemy import select
from typing_extensions import TypedDict

from holdfast.domain.errors import NotFound
from holdfast.domain.project_file import AgentSpec
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import fields_of, table
from holdfast.storage.database.tables import Message, SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction, Frame, Pty
from holdfast.storage.moves import prompt_edits
from holdfast.storage.moves.prompt_edits import EditShown
from holdfast.storage.projects import projects
from holdfast.storage.sessions import ptys, sessions

OUTPUT_CHARS = 500
INPUT_CHARS_MAX = 8192
ITEMS_MAX = 100
FRAMES_MAX = 500
CAGE_KIND = "bubblewrap"
_calls, _invocations, _messages = table(ToolCallRow), table(SubagentInvocation), table(Message)
_frames, _ptys, _compactions = table(Frame), table(Pty), table(Compaction)


class StoredCheckpoint(TypedDict):
    """The fields of a checkpoint that are columns of its row."""

    id: str
    session_id: str
    run_id: str | None
    created_at: int
    created_by: str
    reason: str
    compaction_id: str | None
    message_history_cursor: str | None
    message_seq: int
    message_count: int
    resumed_at: int | None
    rolled_back: bool
    superseded_by: str | None
    archived: bool
    head_id: str | None
    tree: str | None
    tree_note: str


class DerivedCheckpoint(TypedDict):
    """The fields of a checkpoint that `checkpoint_json` works out."""

    active_subagents: list[dict[str, Any]]
    pending_tool_calls: list[dict[str, Any]]
    prompts_in_effect: list[dict[str, Any]]
    prompt_edits: list[EditShown]
    message_id: str | None
    can_restore_files: bool
    can_undo_restore: bool
    compaction: NotRequired[dict[str, Any] | None]


class CheckpointShown(StoredCheckpoint, DerivedCheckpoint):
    """A checkpoint of K-059."""


def snapshot(
    db: Db, session_id: str, run_id: str | None, *, tool_call_id: str | None = None
) -> dict[str, Any]:
    """The run's subagents, its tool calls without a result, and the one that asked for a pause."""
    asked = {} if tool_call_id is None else {"tool_call_id": tool_call_id}
    if run_id is None:
        return {"active_subagents": [], "pending_tool_calls": [], **asked}
    return {
        "active_subagents": _subagents(db, session_id, run_id),
        "pending_tool_calls": _pending_calls(db, run_id),
        **asked,
    }


def checkpoint_json(db: Db, row: Checkpoint) -> CheckpointShown:
    """The checkpoint of K-059, with its edits and, when one is pending, its compaction."""
    edits = prompt_edits.of_checkpoint(db, row.id)
    derived: DerivedCheckpoint = {
        "active_subagents": row.snapshot.get("active_subagents", []),
        "pending_tool_calls": row.snapshot.get("pending_tool_calls", []),
        "prompts_in_effect": prompt_edits.in_effect(row.prompts),
        "prompt_edits": [prompt_edits.edit_json(edit) for edit in edits],
        "message_id": row.snapshot.get("message_id"),
        "can_restore_files": row.tree is not None,
        "can_undo_restore": row.undo_tree is not None,
    }
    if row.compaction_id is not None:
        derived["compaction"] = _compaction(db, row.compaction_id)
    return {**fields_of(row, StoredCheckpoint), **derived}


def _pending_calls(db: Db, run_id: str) -> list[dict[str, Any]]:
    rows = (
        select(_calls)
        .where(_calls.c.run_id == run_id, _calls.c.state.in_(("pending", "running")))
        .order_by(_calls.c.created_at, _calls.c.position)
        .limit(ITEMS_MAX)
    )
    return [
        {
            "id": row.id,
            "tool_name": row.tool_name,
            "caller": row.caller,
            "input": _short_input(row.input),
            "state": row.state,
            "created_at": row.created_at,
        }
        for row in db.connection().execute(rows)
    ]


def _short_input(given: Any) -> Any:
    """The input itself, or its beginning when it would make the snapshot large."""
    text = json.dumps(given, ensure_ascii=False)
    return given if len(text) <= INPUT_CHARS_MAX else {"truncated": text[:INPUT_CHARS_MAX]}


def _subagents(db: Db, session_id: str, run_id: str) -> list[dict[str, Any]]:
    rows = (
        select(_invocations)
        .where(_invocations.c.run_id == run_id)
        .order_by(_invocations.c.spawned_at, _invocations.c.id)
        .limit(ITEMS_MAX)
    )
    found = db.connection().execute(rows).all()
    streaming = _streaming(db, session_id) if found else {}
    agents = _agents(db, session_id, {row.agent_path for row in found})
    return [
        {
            "id": row.id,
            "name": row.subagent_name,
            "agent_path": row.agent_path,
            "state": "suspended" if row.state in ("spawned", "running") else "exited",
            "cage_id": row.cage_id,
            "last_output": _last_output(db, row.id, streaming.get(row.agent_path, "")),
            "cage": _cage(agents.get(row.agent_path), row.cage_id),
            **_terminal(db, run_id, row.subagent_name),
        }
        for row in found
    ]


def _last_output(db: Db, invocation_id: str, streaming: str) -> str:
    newest = (
        select(_messages.c.content)
        .where(_messages.c.invocation_id == invocation_id, _messages.c.role == "subagent")
        .order_by(_messages.c.seq.desc())
        .limit(10)
    )
    said = [text for text in db.connection().execute(newest).scalars() if text]
    return "\n".join([*reversed(said), *([streaming] if streaming else [])])[-OUTPUT_CHARS:]


def _streaming(db: Db, session_id: str) -> dict[str, str]:
    """Text that is still on its way: streamed, but of no stored message yet."""
    newest = (
        select(_frames)
        .where(_frames.c.session_id == session_id)
        .order_by(_frames.c.seq.desc())
        .limit(FRAMES_MAX)
    )
    deltas = [row.payload for row in db.connection().execute(newest) if row.type == "delta"]
    ids = {str(payload.get("message_id")) for payload in deltas}
    whole = set(
        db.connection().execute(select(_messages.c.id).where(_messages.c.id.in_(ids))).scalars()
    )
    text: dict[str, str] = {}
    for payload in reversed(deltas):
        if payload.get("message_id") not in whole:
            path = str(payload.get("agent_path", ""))
            text[path] = text.get(path, "") + str(payload.get("text", ""))
    return text


def _agents(db: Db, session_id: str, paths: set[str]) -> dict[str, AgentSpec]:
    """The subagents as the session's project file has them."""
    session = sessions.find(db, session_id)
    found: dict[str, AgentSpec] = {}
    if session is not None and paths:
        with contextlib.suppress(NotFound):
            file = projects.file_of(db, session)
            for path in paths:
                with contextlib.suppress(KeyError, ValueError):
                    found[path] = file.agent(path)
    return found


def _cage(spec: AgentSpec | None, cage_id: str | None) -> dict[str, Any]:
    """The cage that the subagent's programs run in, and what it allows."""
    shown: dict[str, Any] = {
        "id": cage_id,
        "enabled": cage_id is not None,
        "kind": None if cage_id is None else CAGE_KIND,
        "network": cage_id is None,
    }
    if cage_id is None or spec is None or spec.cage == "disabled":
        return shown
    limits = spec.cage.model_dump(include={"memory_mb", "pids", "cpu_s", "walltime_s"})
    return {**shown, "network": spec.cage.net, "limits": limits}


def _terminal(db: Db, run_id: str, name: str) -> dict[str, str | None]:
    rows = select(_ptys).where(_ptys.c.run_id == run_id, _ptys.c.subagent == name)
    found = db.connection().execute(rows.limit(1)).first()
    if found is None:
        return {"pty_id": None, "pty_state": None}
    pty = Pty(**found._mapping)
    return {"pty_id": pty.id, "pty_state": ptys.state_now(db, pty)}


def _compaction(db: Db, compaction_id: str) -> dict[str, Any] | None:
    row = db.connection().execute(select(_compactions).where(_compactions.c.id == compaction_id))
    found = row.first()
    return None if found is None else dict(found._mapping)
