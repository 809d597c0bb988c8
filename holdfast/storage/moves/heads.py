"""Heads: immutable states of a session, one per finished run and per checkpoint.

A head's id is the hash of its state root. The root holds the session's facts and, for each
collection, what is new since the head before it; small deltas lie in the root itself, so that most
heads are one blob. Restoring follows the basis from root to root.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import bindparam, func, select, update

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.domain.events import HeadCreated
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.blobs import BlobMissing, BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, change, find_row, fresh, insert_once, made, table
from holdfast.storage.database.tables import Message, Run, SessionRow, SubagentInvocation
from holdfast.storage.database.tables_history import Checkpoint, Derivation, Head
from holdfast.storage.log import events
from holdfast.storage.moves.head_deltas import (
    KINDS,
    Delta,
    heads_since,
    messages_since,
    rows_since,
    stamp,
)
from holdfast.storage.sessions import sessions

STATE_VERSION = 2
DELTA_VERSION = 1
COLLECTIONS = ("messages", *KINDS, "heads")
INLINE_BYTES_MAX = 32 * 1024
SUMMARY_CHARS = 200
# What a checkpoint holds and never changes.
SNAPSHOT_FACTS = ("message_seq", "change", "snapshot", "prompts")
_heads, _messages, _runs = table(Head), table(Message), table(Run)
_derivations, _checkpoints = table(Derivation), table(Checkpoint)
_invocations = table(SubagentInvocation)
_DERIVED = select(_derivations).where(_derivations.c.target_session == bindparam(KEY))
_FINAL = (
    select(_messages.c.id, _messages.c.content)
    .join(_runs, _runs.c.primary_response == _messages.c.id)
    .where(_runs.c.id == bindparam(KEY))
)
_LAST_NUMBER = select(func.max(_heads.c.number)).where(_heads.c.session_id == bindparam(KEY))
_SNAPSHOT = select(_checkpoints).where(_checkpoints.c.id == bindparam(KEY))
# Subagents whose end this head is the first to hold.
_ENDED = (
    update(_invocations)
    .where(
        _invocations.c.session_id == bindparam(KEY),
        _invocations.c.last_head == bindparam("head_number"),
        _invocations.c.caller_head_after.is_(None),
    )
    .values(caller_head_after=bindparam("head_id"), callee_head_after=bindparam("head_id"))
)
_CAUSES = {
    name: select(_heads).where(
        _heads.c.session_id == bindparam(KEY), _heads.c[name] == bindparam("cause")
    )
    for name in ("run_id", "checkpoint_id")
}


def create(
    db: Db,
    blobs: BlobStore,
    session_id: str,
    *,
    run_id: str | None = None,
    checkpoint_id: str | None = None,
    whole: bool = False,
) -> str:
    """Write the head of a finished run or of a checkpoint, and point the session at it.

    Safe to repeat: one run or checkpoint has one head. The bytes are on disk before the row is.
    With `whole` it holds everything and reads no head before it: for a basis whose blob is gone.
    """
    known = of(db, session_id, run_id=run_id, checkpoint_id=checkpoint_id)
    if known is not None:
        return known.id
    session = sessions.lock(db, session_id)
    current = None if whole else session.current_head
    basis = find(db, current) if current else None
    number = _last_number(db, session_id) + 1
    collections = _collections(db, blobs, session_id, basis, number)
    final = _final_message(db, run_id)
    facts = _facts(db, session, basis, number, run_id, checkpoint_id)
    final_ref = None if final is None else final[0]
    blob = blobs.put_json({**facts, "final_ref": final_ref, "collections": collections})
    head = fresh(
        Head,
        id=blob.sha256,
        session_id=session_id,
        number=number,
        basis=facts["basis"],
        fingerprint=blob.sha256,
        state_ref=blob_rows.commit(db, blob),
        final_ref=final_ref,
        final_summary=None if final is None else final[1][:SUMMARY_CHARS],
        run_id=run_id,
        checkpoint_id=checkpoint_id,
        snapshot_ref=facts["snapshot_ref"],
        message_seq=session.message_seq,
        change=session.change_seq,
        message_count=session.message_count,
        created_at=now_ms(),
        cache_id=session.cache_id,
    )
    insert_once(db, Head, head.model_dump())
    if _has_delta(collections["invocations"]):
        db.connection().execute(
            _ENDED, {KEY: session_id, "head_number": number, "head_id": head.id}
        )
    change(db, SessionRow, session_id, current_head=head.id)
    created = HeadCreated(head_id=head.id, basis=head.basis)
    events.append(db, session_id, created, run_id=run_id, row=("head", head.id))
    return head.id


def create_anyhow(
    db: Db,
    blobs: BlobStore,
    session_id: str,
    *,
    run_id: str | None = None,
    checkpoint_id: str | None = None,
) -> str:
    """`create`; whole when the head before it is gone, so that a session can always be moved."""
    try:
        return create(db, blobs, session_id, run_id=run_id, checkpoint_id=checkpoint_id)
    except BlobMissing:
        # The basis is read before anything is written.
        return create(db, blobs, session_id, run_id=run_id, checkpoint_id=checkpoint_id, whole=True)


def find(db: Db, head_id: str) -> Head | None:
    """The head, or None."""
    return find_row(db, Head, head_id)


def get(db: Db, session_id: str, head_id: str) -> Head:
    """The head of this session, or NotFound."""
    head = find(db, head_id)
    if head is None or head.session_id != session_id:
        raise NotFound("Head not found.")
    return head


def of(
    db: Db, session_id: str, *, run_id: str | None = None, checkpoint_id: str | None = None
) -> Head | None:
    """The head that a run or a checkpoint left, or None."""
    assert (run_id is None) != (checkpoint_id is None), "a head has one cause"
    wanted = _CAUSES["run_id" if run_id else "checkpoint_id"]
    values = {KEY: session_id, "cause": run_id or checkpoint_id}
    found = db.connection().execute(wanted, values).first()
    return None if found is None else made(Head, found)


def of_session(db: Db, session_id: str, *, limit: int, before: int | None = None) -> list[Head]:
    """The session's heads, newest first, those with a number below `before`."""
    rows = select(_heads).where(_heads.c.session_id == session_id)
    if before is not None:
        rows = rows.where(_heads.c.number < before)
    rows = rows.order_by(_heads.c.number.desc()).limit(limit)
    return [made(Head, row) for row in db.connection().execute(rows)]


def root(blobs: BlobStore, head_id: str) -> dict[str, Any]:
    """The state root of a head; its bytes are verified against the id."""
    found: dict[str, Any] = blobs.read_json(f"sha256:{head_id}")
    return found


def materialize(
    blobs: BlobStore, head_id: str, names: Iterable[str] = COLLECTIONS
) -> dict[str, Any]:
    """The whole state at a head: its facts, and every collection put together again."""
    roots: dict[str, dict[str, Any]] = {head_id: root(blobs, head_id)}
    state = {key: value for key, value in roots[head_id].items() if key != "collections"}
    state["collections"] = {name: _gather(blobs, roots, head_id, name) for name in names}
    return state


def snapshot_ref(checkpoint: Any) -> str:
    """The hash of a checkpoint's snapshot, by which its head names it."""
    return sha256(canonical({name: getattr(checkpoint, name) for name in SNAPSHOT_FACTS}))


def head_json(head: Head, *, current: str | None) -> dict[str, Any]:
    """The head as the wire shows it."""
    shown = head.model_dump(exclude={"message_seq", "change"})
    return {**shown, "current": head.id == current}


def _gather(
    blobs: BlobStore, roots: dict[str, dict[str, Any]], head_id: str, name: str
) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    at: str | None = head_id
    while at is not None:
        if at not in roots:
            roots[at] = root(blobs, at)
        part = roots[at]["collections"][name]
        if part["delta_ref"] is not None:
            deltas.append(blobs.read_json(part["delta_ref"]))
        elif part["delta"] is not None:
            deltas.append(part["delta"])
        at = part["basis"]
    entries: dict[str, dict[str, Any]] = {}
    for delta in reversed(deltas):
        for entry in (*delta["append"], *delta["replace"]):
            entries[entry["id"]] = entry
        for entry_id in delta["remove"]:
            entries.pop(entry_id, None)
    return list(entries.values())


def _collections(
    db: Db, blobs: BlobStore, session_id: str, basis: Head | None, number: int
) -> dict[str, Any]:
    """Every collection's place in the root; the rows are stamped with the head's number."""
    message_base, delta = messages_since(db, session_id, basis)
    counted = _counts(blobs, None if basis is None else basis.id)
    if basis is None and message_base is not None:
        counted["messages"] = _counts(blobs, message_base)["messages"]
    parts = {"messages": _collection(db, blobs, "messages", message_base, delta, counted)}
    basis_id, basis_number = (None, 0) if basis is None else (basis.id, basis.number)
    for name, kind in KINDS.items():
        delta, rows = rows_since(db, kind, session_id, basis_number)
        parts[name] = _collection(db, blobs, name, basis_id, delta, counted)
        stamp(db, kind, rows, number)
    delta = heads_since(db, session_id, basis, number)
    parts["heads"] = _collection(db, blobs, "heads", basis_id, delta, counted)
    return parts


def _collection(
    db: Db,
    blobs: BlobStore,
    name: str,
    basis: str | None,
    delta: Delta,
    counted: dict[str, int],
) -> dict[str, Any]:
    """The collection's place in the root; a large delta goes into a blob of its own."""
    part: dict[str, Any] = {
        "count": counted[name] + len(delta.append),
        "basis": basis,
        "delta": None,
        "delta_ref": None,
    }
    if delta:
        payload = {
            "version": DELTA_VERSION,
            "collection": name,
            "basis": basis,
            "append": delta.append,
            "replace": delta.replace,
            "remove": [],
        }
        if len(canonical(payload)) <= INLINE_BYTES_MAX:
            part["delta"] = payload
        else:
            part["delta_ref"] = blob_rows.commit(db, blobs.put_json(payload))
    return part


def _counts(blobs: BlobStore, head_id: str | None) -> dict[str, int]:
    if head_id is None:
        return dict.fromkeys(COLLECTIONS, 0)
    known = root(blobs, head_id)["collections"]
    return {name: int(known[name]["count"]) for name in COLLECTIONS}


def _facts(
    db: Db,
    session: SessionRow,
    basis: Head | None,
    number: int,
    run_id: str | None,
    checkpoint_id: str | None,
) -> dict[str, Any]:
    derivation = db.connection().execute(_DERIVED, {KEY: session.id}).first()
    names = ("id", "project_id", "created_by", "created_at", "forked_from", "dsl_hash", "cache_id")
    return {
        "version": STATE_VERSION,
        "basis": None if basis is None else basis.id,
        "session": {name: getattr(session, name) for name in names},
        "derivation": None
        if derivation is None
        else {"source_session": derivation.source_session, "source_head": derivation.source_head},
        "run_id": run_id,
        "snapshot_id": checkpoint_id,
        "snapshot_ref": _snapshot(db, checkpoint_id),
        "prompts": session.prompts,
        # High-water marks: a session restored from here never uses a number twice.
        "counters": {
            "messages": session.message_seq,
            "changes": session.change_seq,
            "events": session.event_seq,
            "runs": session.run_count,
            "heads": number,
        },
    }


def _snapshot(db: Db, checkpoint_id: str | None) -> str | None:
    if checkpoint_id is None:
        return None
    return snapshot_ref(db.connection().execute(_SNAPSHOT, {KEY: checkpoint_id}).one())


def _has_delta(part: dict[str, Any]) -> bool:
    return part["delta"] is not None or part["delta_ref"] is not None


def _final_message(db: Db, run_id: str | None) -> tuple[str, str] | None:
    """The run's answer: its message's id and text."""
    found = db.connection().execute(_FINAL, {KEY: run_id}).first()
    return None if found is None else (found.id, found.content)


def _last_number(db: Db, session_id: str) -> int:
    return int(db.connection().execute(_LAST_NUMBER, {KEY: session_id}).scalar() or 0)
