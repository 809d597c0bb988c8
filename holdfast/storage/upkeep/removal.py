"""Purge, clear and prune: rows that go for good, and what forks still need of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.events import SessionCleared
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, step_counter, table
from holdfast.storage.database.tables import (
    Call,
    InboxMessage,
    Message,
    SessionRow,
    Supersession,
    ToolCallRow,
    WaitingMessage,
)
from holdfast.storage.database.tables_history import (
    Blob,
    Derivation,
    Head,
    PtyTranscript,
    TreeBundle,
)
from holdfast.storage.database.tables_hosts import MemoryIndexPart
from holdfast.storage.database.tables_library import Alias, Chat
from holdfast.storage.log import events
from holdfast.storage.moves import forks, prompt_edits, tree_bundles
from holdfast.storage.search.index import index_of
from holdfast.storage.search.indexer import forget
from holdfast.storage.sessions import messages, ptys, purged_workflows, sessions
from holdfast.storage.transfer import archive, blob_names

BUSY = frozenset({State.RUNNING, State.QUEUED, State.PAUSED})
DAY_MS = 86_400_000
PRUNE_MAX = 10_000
IDS_SHOWN_MAX = 500
_sessions, _messages, _heads = table(SessionRow), table(Message), table(Head)
_derivations, _blobs, _supersessions = table(Derivation), table(Blob), table(Supersession)
_calls, _tools, _terminals = table(Call), table(ToolCallRow), table(PtyTranscript)
# Every column outside a blob that may name one.
_NAMED_IN = (
    _calls.c.request_ref,
    _calls.c.response_ref,
    _tools.c.output_ref,
    _terminals.c.transcript,
    _heads.c.state_ref,
    _heads.c.final_ref,
    table(TreeBundle).c.blob,
    table(MemoryIndexPart).c.blob,
)
_CLEARED = (
    "messages",
    "supersessions",
    "runs",
    "calls",
    "tool_calls",
    "subagent_invocations",
    "checkpoints",
    "prompt_edits",
    "compactions",
    "heads",
)


@dataclass(frozen=True)
class Prunable:
    """A session that a prune would remove."""

    id: str
    operator_id: str
    title: str | None


def purge(store: OpenStore, session_id: str) -> dict[str, Any]:
    """Remove the session for good (H-042); Conflict while it is at work.

    Forks stay readable: what they read of it is kept, out of everybody's sight.
    """
    gone: set[str] = set()
    began = time.time()

    def work(db: Db) -> dict[str, int]:
        gone.clear()
        _lock(db, store, session_id, "purge")
        if ptys.live_count(db, session_id) > 0:
            raise Conflict("cannot purge: a terminal of this session is still open")
        return _purge(db, store, session_id, gone)

    removed = store.write(work)
    delete_bytes(store, gone, began)
    return {"session_id": session_id, "removed": removed, "blobs": len(gone)}


def clear_messages(store: OpenStore, session_id: str, user_id: str) -> int:
    """Forget everything that was said and keep the session (H-041); how many messages went.

    A fork no longer reads its source, whose own messages stay for everybody else.
    """
    gone: set[str] = set()
    began = time.time()

    def work(db: Db) -> int:
        gone.clear()
        session = _lock(db, store, session_id, "clear")
        # A cleared fork of this session reads nothing of it: 0.
        if forks.kept_for_forks(db, session_id):
            raise Conflict("cannot clear: forks of this session read its messages")
        forget(db, index_of(store), session_id)
        named = _named(db, store, session) | tree_bundles.drop_all(db, session_id)
        kept = [name for name in archive.COLLECTIONS if name not in _CLEARED]
        count = messages.inherited_count(db, session_id)
        count += archive.delete_rows(db, session_id, keep=kept)["messages"]
        source_id = forks.read_nothing(db, session_id)
        # The memory of a project reads a session again when its changes were counted on.
        step_counter(db, SessionRow, session_id, "change_seq")
        change(
            db, SessionRow, session_id, preview="", message_count=0, current_head=None,
            tool_call_count=0, current_checkpoint=None, updated_at=now_ms(), last_run_id=None,
            failed_run_id=None, attention=None, attention_kind=None,
        )  # fmt: skip
        cleared = SessionCleared(session_id=session_id, user_id=user_id, messages=count)
        events.append(db, session_id, cleared, row=("session", session_id))
        gone.update(drop_blobs(db, store, named))
        if source_id is not None and sessions.lock(db, source_id).purged:
            # What was kept for this fork alone goes now.
            _purge(db, store, source_id, gone)
        return count

    count = store.write(work)
    delete_bytes(store, gone, began)
    return count


def prunable(
    db: Db, operator_id: str | None, *, older_than_days: int, source: str | None = None
) -> list[Prunable]:
    """Ended sessions, of one operator or of all, whose end is that long ago (H-040).

    Pinned ones stay.
    """
    before = now_ms() - older_than_days * DAY_MS
    columns = (_sessions.c.id, _sessions.c.created_by, _sessions.c.title)
    rows = select(*columns).where(
        _sessions.c.state == State.ENDED.value,
        _sessions.c.ended_at < before,
        _sessions.c.pinned.is_(False),
        _sessions.c.purged.is_(False),
    )
    if operator_id is not None:
        rows = rows.where(_sessions.c.created_by == operator_id)
    if source is not None:
        rows = rows.where(_sessions.c.source == source)
    found = db.connection().execute(rows.order_by(_sessions.c.ended_at).limit(PRUNE_MAX))
    return [Prunable(*row) for row in found]


def prune(
    store: OpenStore,
    operator_id: str,
    *,
    older_than_days: int,
    source: str | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Purge what `prunable` names, one transaction each; a dry run only says what would go."""
    chosen = store.read(
        lambda db: prunable(db, operator_id, older_than_days=older_than_days, source=source)
    )
    pruned = []
    for session in chosen:
        if not dry_run:
            try:
                purge(store, session.id)
            except Conflict:
                continue  # somebody opened it again meanwhile
        pruned.append(session.id)
    return {
        "dry_run": dry_run,
        "count": len(pruned),
        "session_ids": pruned[:IDS_SHOWN_MAX],
        "older_than_days": older_than_days,
    }


def _purge(db: Db, store: OpenStore, session_id: str, gone: set[str]) -> dict[str, int]:
    named = _named(db, store, sessions.get(db, session_id))
    named |= tree_bundles.drop_all(db, session_id)
    sources = _sources(db, session_id)
    kept_seq = forks.kept_for_forks(db, session_id)
    forget(db, index_of(store), session_id)
    if kept_seq is None:
        removed = archive.delete_rows(db, session_id)
        db.connection().execute(delete(_sessions).where(_sessions.c.id == session_id))
    else:
        removed = _keep_for_forks(db, session_id, kept_seq)
    for model in (Alias, Chat, InboxMessage, WaitingMessage):
        place = table(model)
        db.connection().execute(delete(place).where(place.c.session_id == session_id))
    gone |= drop_blobs(db, store, named)
    purged_workflows.note(db, session_id)
    for source_id in sources:
        source = sessions.find(db, source_id)
        if source is not None and source.purged:
            # It was only kept for this fork, or for others as well: look again.
            _purge(db, store, source_id, gone)
    return removed


def _keep_for_forks(db: Db, session_id: str, kept_seq: int) -> dict[str, int]:
    named = select(_derivations.c.source_head).where(_derivations.c.source_session == session_id)
    last = db.connection().execute(select(func.max(_heads.c.number)).where(_heads.c.id.in_(named)))
    last_head = last.scalar() or 0
    kept = ("messages", "supersessions", "derivations", "heads")
    removed = archive.delete_rows(db, session_id, keep=kept)
    beyond = delete(_messages).where(
        _messages.c.session_id == session_id, _messages.c.seq > kept_seq
    )
    removed["messages"] = db.connection().execute(beyond).rowcount
    db.connection().execute(
        delete(_heads).where(_heads.c.session_id == session_id, _heads.c.number > last_head)
    )
    _drop_newer_supersessions(db, session_id)
    change(
        db, SessionRow, session_id, purged=True, archived=True, state=State.ENDED.value,
        title=None, title_source=None, preview="", failure=None, current_head=None,
        active_run=None, current_checkpoint=None, event_seq=0, event_hash="",
        waiting=0, attention=None, attention_kind=None, failed_run_id=None, last_run_id=None,
        trouble=None,
    )  # fmt: skip
    return removed


def _drop_newer_supersessions(db: Db, session_id: str) -> None:
    """Those that no fork knows; they name messages that have just gone."""
    seen = select(func.max(_derivations.c.cutoff_change)).where(
        _derivations.c.source_session == session_id
    )
    last_change = db.connection().execute(seen).scalar() or 0
    newer = _supersessions.c.session_id == session_id, _supersessions.c.change > last_change
    db.connection().execute(delete(_supersessions).where(*newer))


def _sources(db: Db, session_id: str) -> list[str]:
    edges = select(_derivations.c.source_session).where(_derivations.c.target_session == session_id)
    return [str(row[0]) for row in db.connection().execute(edges)]


def _named(db: Db, store: OpenStore, session: SessionRow) -> set[str]:
    """Every blob that the session's rows name; its own row names prompts, edits their hash."""
    rows = archive.rows_of(db, session.id)
    edited = {row["id"]: f"sha256:{row['new_hash']}" for row in rows["prompt_edits"]}
    return archive.blobs_named(store.blobs, [rows], [edited, session.prompts])


def delete_bytes(store: OpenStore, blob_ids: set[str], since_s: float) -> None:
    """Only after the commit: a blob without a row is an orphan, a row without a blob a lie.

    Equal bytes that somebody stored after `since_s` are his; if they are not, they are an orphan.
    """
    for blob_id in blob_ids:
        store.blobs.delete(blob_id, before_s=since_s)


def drop_blobs(db: Db, store: OpenStore, candidates: set[str]) -> set[str]:
    """Remove the rows of blobs that nobody names any more; their bytes go after the commit."""
    still: set[str] = set()
    ids = sorted(candidates)
    for start in range(0, len(ids), 500):
        chunk = ids[start : start + 500]
        for column in _NAMED_IN:
            found = db.connection().execute(select(column).where(column.in_(chunk)))
            still |= {str(row[0]) for row in found}
    # Roots of heads that stay name further blobs of this session.
    still |= {blob_id for blob_id, _ in blob_names.walk(store.blobs, set(), set(still))}
    # Prompts are named inside maps, and sessions of one project share them.
    gone = candidates - still - prompt_edits.blobs_in_use(db)
    for start in range(0, len(ids), 500):
        chunk = [blob_id for blob_id in ids[start : start + 500] if blob_id in gone]
        db.connection().execute(delete(_blobs).where(_blobs.c.id.in_(chunk)))
    return gone


def _lock(db: Db, store: OpenStore, session_id: str, verb: str) -> SessionRow:
    """The session, locked; Conflict while it is at work.

    The index is locked first: two removals wait for both in one order, and an indexer that is at
    work ends before the words go.
    """
    index_of(store).lock(db)
    session = sessions.lock(db, session_id)
    if State(session.state) in BUSY:
        raise Conflict(f"cannot {verb} while {session.state}", {"state": session.state})
    return session
