"""A session's rows and blobs as one JSON value, and back again with the same ids and hashes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlmodel import SQLModel

from holdfast.domain.canonical import sha256
from holdfast.domain.errors import ValidationFailed
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import (
    Call,
    Message,
    Run,
    SubagentInvocation,
    Supersession,
    ToolCallRow,
)
from holdfast.storage.database.tables_approvals import Approval, PermissionRow
from holdfast.storage.database.tables_history import (
    Checkpoint,
    Compaction,
    Derivation,
    EventRow,
    Frame,
    Head,
    PromptEdit,
    Pty,
    PtyTranscript,
)
from holdfast.storage.transfer import blob_names

INSERT_ROWS = 200
# Everything that belongs to one session, in the order it is put back. Frames are not history.
COLLECTIONS: dict[str, tuple[type[SQLModel], str, tuple[str, ...]]] = {
    "messages": (Message, "session_id", ("seq",)),
    "supersessions": (Supersession, "session_id", ("change", "number")),
    "runs": (Run, "session_id", ("created_at", "id")),
    "calls": (Call, "session_id", ("created_at", "id")),
    "tool_calls": (ToolCallRow, "session_id", ("created_at", "id")),
    "subagent_invocations": (SubagentInvocation, "session_id", ("spawned_at", "id")),
    "checkpoints": (Checkpoint, "session_id", ("created_at", "id")),
    "prompt_edits": (PromptEdit, "session_id", ("edited_at", "id")),
    "compactions": (Compaction, "session_id", ("created_at", "id")),
    "heads": (Head, "session_id", ("number",)),
    "derivations": (Derivation, "target_session", ("created_at", "id")),
    "ptys": (Pty, "session_id", ("created_at", "id")),
    "transcripts": (PtyTranscript, "session_id", ("created_at", "id")),
    "events": (EventRow, "session_id", ("seq",)),
}
# Rows that the database numbers itself.
_NUMBERED = ("messages", "supersessions")


def rows_of(db: Db, session_id: str) -> dict[str, list[dict[str, Any]]]:
    """Every collection of the session."""
    return {name: _rows(db, name, session_id) for name in COLLECTIONS}


def put_rows(db: Db, collections: dict[str, list[dict[str, Any]]]) -> None:
    """Store the collections again; what is not theirs to say is left out or refused."""
    for name, (model, _, _) in COLLECTIONS.items():
        known = set(model.model_fields)
        rows = []
        for given in collections.get(name) or []:
            if not isinstance(given, dict) or not set(given) <= known:
                raise ValidationFailed(f"the export has an unknown field in {name}")
            checked = model.model_validate(given).model_dump()
            if name in _NUMBERED:
                del checked["number"]
            rows.append(checked)
        for start in range(0, len(rows), INSERT_ROWS):
            db.connection().execute(insert(table(model)), rows[start : start + INSERT_ROWS])


def delete_rows(db: Db, session_id: str, *, keep: Iterable[str] = ()) -> dict[str, int]:
    """Remove the session's rows for good, except the collections in `keep`; how many of each."""
    removed: dict[str, int] = {}
    for name, (model, owner, _) in reversed(COLLECTIONS.items()):
        if name not in keep:
            place = table(model)
            gone = db.connection().execute(delete(place).where(place.c[owner] == session_id))
            removed[name] = gone.rowcount
    # Not history, or told by events: what a client missed, questions, and answers to them.
    for model in (Frame, Approval, PermissionRow):
        place = table(model)
        db.connection().execute(delete(place).where(place.c.session_id == session_id))
    return removed


def blobs_of(
    blobs: BlobStore, collections: Sequence[blob_names.Rows], prompts: Iterable[Any]
) -> dict[str, str]:
    """The bytes of every blob that the rows and prompts name, and that those name, in base64."""
    found = _walk(blobs, collections, prompts)
    return {blob_id: base64.b64encode(data).decode() for blob_id, data in found}


def blobs_named(
    blobs: BlobStore, collections: Sequence[blob_names.Rows], prompts: Iterable[Any]
) -> set[str]:
    """The ids of every blob that the rows and prompts name, and that those name."""
    return {blob_id for blob_id, _ in _walk(blobs, collections, prompts)}


def decoded(given: dict[str, str], blob_id: str) -> bytes:
    """The bytes of one blob of a document, checked against its name."""
    try:
        data = base64.b64decode(given[blob_id], validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValidationFailed(f"blob {blob_id[:80]} is not base64") from None
    if blob_id != f"sha256:{sha256(data)}":
        raise ValidationFailed(f"blob {blob_id[:80]} does not match its name")
    return data


def put_blobs(db: Db, blobs: BlobStore, given: dict[str, str]) -> int:
    """Store the bytes, each checked against its name, and commit their rows."""
    for blob_id in given:
        data = decoded(given, blob_id)
        media_type = "application/json" if data[:1] in (b"{", b"[") else "application/octet-stream"
        blob_rows.commit(db, blobs.put(data, media_type))
    return len(given)


def _rows(db: Db, name: str, session_id: str) -> list[dict[str, Any]]:
    model, owner, order = COLLECTIONS[name]
    place = table(model)
    rows = select(place).where(place.c[owner] == session_id)
    rows = rows.order_by(*(place.c[column] for column in order))
    return [dict(row._mapping) for row in db.connection().execute(rows)]


def _walk(
    blobs: BlobStore, collections: Sequence[blob_names.Rows], prompts: Iterable[Any]
) -> Iterator[tuple[str, bytes]]:
    named: set[str] = set()
    roots: set[str] = set()
    for rows in collections:
        named |= blob_names.in_rows(rows)
        roots |= blob_names.roots_of(rows)
    for one in prompts:
        named |= blob_names.in_prompts(one)
    yield from blob_names.walk(blobs, named, roots)
