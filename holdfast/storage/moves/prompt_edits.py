"""Prompts in effect and their edits at a checkpoint.

A session's `prompts` map an agent path to the blob of the text that replaces the project file's; a
checkpoint's map names the text of every agent. The hash of a prompt is the hash of its blob.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from typing_extensions import TypedDict

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.domain.events import PromptEdited
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import State
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, fields_of, insert_once, table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.database.tables_history import Checkpoint, PromptEdit
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions

PROMPT_CHARS_MAX = 200_000
EDITS_MAX = 1000
RECENT_MAX = 50
ROOT = "primary"
NOTICE_KIND = "prompt_notice"
# K-142: what the operator reads when the provider refuses the first call after an edit.
REJECTED = "Prompt edit caused an error. Review the edited prompt."
NOTICE = (
    "System prompts were updated at this checkpoint. "
    "Previous prompt hash: {old}, new prompt hash: {new}."
)
_edits, _sessions, _checkpoints = table(PromptEdit), table(SessionRow), table(Checkpoint)
_messages = table(Message)


class EditShown(TypedDict):
    """A prompt edit."""

    id: str
    checkpoint_id: str
    target: str
    old_hash: str
    new_hash: str
    edited_at: int


def store(db: Db, blobs: BlobStore, texts: Mapping[str, str]) -> dict[str, str]:
    """Keep prompt texts; the map from agent path to blob."""
    return {path: _keep(db, blobs, text) for path, text in texts.items()}


def text_of(blobs: BlobStore, session: SessionRow, agent_path: str) -> str | None:
    """The prompt that replaces the project file's for this agent, or None."""
    blob_id = session.prompts.get(agent_path)
    return None if blob_id is None else blobs.read(blob_id).decode("utf-8", "surrogatepass")


def prompt_hash(blob_id: str) -> str:
    """The hash that operators see."""
    return blob_id.removeprefix("sha256:")


def target_of(agent_path: str) -> str:
    """The name of an agent in URLs: `primary`, a subagent's name, or names joined by dots."""
    return ".".join(agent_path.split(".")[2::2]) or ROOT


def agent_path_of(target: str) -> str:
    """The agent path that a target names; a whole agent path names itself."""
    if target == ROOT or target.startswith(f"{ROOT}."):
        return target
    return ".".join([ROOT, *(part for name in target.split(".") for part in ("subagents", name))])


def edit(db: Db, blobs: BlobStore, checkpoint: Checkpoint, target: str, content: str) -> PromptEdit:
    """Replace one prompt at the current pause point; the last of several edits counts."""
    session = sessions.lock(db, checkpoint.session_id)
    if session.state != State.PAUSED or session.current_checkpoint != checkpoint.id:
        raise Conflict(
            "prompts can be edited only at the current pause point",
            {"state": session.state, "current_checkpoint": session.current_checkpoint},
        )
    if not content.strip() or len(content) > PROMPT_CHARS_MAX:
        raise ValidationFailed(f"a prompt has 1 to {PROMPT_CHARS_MAX} characters")
    path = agent_path_of(target)
    if path not in checkpoint.prompts:
        raise NotFound("No agent of this name.", {"targets": _targets(checkpoint)})
    old = session.prompts.get(path, checkpoint.prompts[path])
    new = _keep(db, blobs, content)
    row = PromptEdit(
        id=new_id(),
        checkpoint_id=checkpoint.id,
        session_id=session.id,
        target=target_of(path),
        old_hash=prompt_hash(old),
        new_hash=prompt_hash(new),
        new_content=content,
        edited_at=now_ms(),
    )
    insert_once(db, PromptEdit, row.model_dump())
    change(db, SessionRow, session.id, prompts={**session.prompts, path: new})
    edited = PromptEdited(
        checkpoint_id=checkpoint.id, target=row.target, old_hash=row.old_hash, new_hash=row.new_hash
    )
    events.append(db, session.id, edited, run_id=checkpoint.run_id, row=("prompt_edit", row.id))
    return row


def of_checkpoint(db: Db, checkpoint_id: str) -> list[PromptEdit]:
    """The edits made at a checkpoint, oldest first."""
    rows = (
        select(_edits)
        .where(_edits.c.checkpoint_id == checkpoint_id)
        .order_by(_edits.c.edited_at, _edits.c.id)
        .limit(EDITS_MAX)
    )
    return [PromptEdit(**row._mapping) for row in db.connection().execute(rows)]


def changes(checkpoint: Checkpoint, session: SessionRow) -> list[tuple[str, str, str]]:
    """(target, old hash, new hash) of each prompt that differs from the checkpoint's."""
    return [
        (target_of(path), prompt_hash(old), prompt_hash(session.prompts[path]))
        for path, old in sorted(checkpoint.prompts.items())
        if session.prompts.get(path, old) != old
    ]


def unproven(db: Db, session_id: str) -> bool:
    """Whether prompts were edited and no model has answered with them yet."""
    newest = (
        select(_messages.c.role, _messages.c.meta)
        .where(_messages.c.session_id == session_id)
        .order_by(_messages.c.seq.desc())
        .limit(RECENT_MAX)
    )
    for row in db.connection().execute(newest):
        if row.meta.get("kind") == NOTICE_KIND:
            return True
        if row.role in ("primary", "subagent") and not row.meta.get("interrupted"):
            return False
    return False


def in_effect(prompts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The prompt snapshots of K-061."""
    return [
        {"target": target_of(path), "content_hash": prompt_hash(blob), "editable": True}
        for path, blob in sorted(prompts.items())
    ]


def blobs_in_use(db: Db) -> set[str]:
    """The texts that any session or checkpoint has in effect; equal prompts share one blob."""
    used: set[str] = set()
    for column in (_sessions.c.prompts, _checkpoints.c.prompts):
        for prompts in db.connection().execute(select(column).distinct()).scalars():
            used.update(prompts.values())
    return used


def edit_json(row: PromptEdit) -> EditShown:
    """An edit as the wire shows it."""
    return fields_of(row, EditShown)


def prompt_json(db: Db, blobs: BlobStore, checkpoint: Checkpoint, target: str) -> dict[str, Any]:
    """A prompt's text: the edited one at the pause point, else as it was at the checkpoint."""
    path = agent_path_of(target)
    if path not in checkpoint.prompts:
        raise NotFound("No agent of this name.", {"targets": _targets(checkpoint)})
    session = sessions.get(db, checkpoint.session_id)
    blob_id = checkpoint.prompts[path]
    if session.current_checkpoint == checkpoint.id:
        blob_id = session.prompts.get(path, blob_id)
    return {
        "target": target_of(path),
        "content": blobs.read(blob_id).decode("utf-8", "surrogatepass"),
        "content_hash": prompt_hash(blob_id),
        "editable": True,
    }


def _keep(db: Db, blobs: BlobStore, text: str) -> str:
    return blob_rows.commit(db, blobs.put(_bytes(text), "text/plain"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _targets(checkpoint: Checkpoint) -> list[str]:
    return [target_of(path) for path in sorted(checkpoint.prompts)]
