"""Compares what was acknowledged with what is stored; every difference is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import SQLModel

from holdfast.domain.lifecycle import TRANSITIONS, State
from holdfast.selftest.record import Acknowledged, Finding, Record, Seen
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, Run, SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction, EventRow, Frame, Pty
from holdfast.storage.log import events
from holdfast.storage.upkeep import consistency

_sessions, _messages, _runs = table(SessionRow), table(Message), table(Run)
_events, _frames, _calls = table(EventRow), table(Frame), table(ToolCallRow)
ENDED_RUNS = frozenset({"done", "failed", "cancelled"})
ROWS_OF: dict[str, type[SQLModel]] = {
    "checkpoint": Checkpoint,
    "compaction": Compaction,
    "terminal": Pty,
}


def check(store: OpenStore, record: Record) -> list[Finding]:
    """Every finding, in the order of the promises. It only reads."""
    found = list(record.findings)
    for promise in CHECKS:
        found += store.read(lambda db, promise=promise: list(promise(db, record)))  # type: ignore[misc]
    found += lines(record, store.read(_done_commands))
    report = consistency.check(store, "deep")
    found += [
        Finding("store_inconsistent", f"{issue.type}: {issue.id}", issue.session_id or "")
        for issue in report.issues
    ]
    return found


def messages(db: Db, record: Record) -> Iterator[Finding]:
    """Each acknowledged message is there once, with its run; a refused one is not there."""
    stored: Counter[str] = Counter()
    ids: dict[str, Any] = {}
    for row in _rows(db, _messages.c.role == "operator", _messages):
        stored[row.content.split("\n", 1)[0]] += 1
        ids[row.id] = row
    runs = {row.id: row for row in _rows(db, None, _runs)}
    for one in _of(record, "message"):
        row, run = ids.get(one.id), runs.get(one.run_id)
        if row is None or row.session_id != one.session_id or not row.content.startswith(one.word):
            yield Finding("message_lost", f"{one.word} ({one.id})", one.session_id)
        elif run is None or run.operator_message != one.id:
            yield Finding("run_lost", f"run {one.run_id} of {one.word}", one.session_id)
    for word, count in stored.items():
        if count > 1:
            yield Finding("message_twice", f"{word} is stored {count} times")
        if word in record.refused_words:
            yield Finding("refused_but_done", f"{word} was refused and is stored")


def states(db: Db, record: Record) -> Iterator[Finding]:
    """Session states follow the lifecycle table, one after the other, up to the row's own."""
    at: dict[str, str] = {}
    moves = (_events.c.kind == "session.state") | (_events.c.kind == "session.created")
    for row in _rows(db, moves, _events, _events.c.session_id, _events.c.seq):
        if row.kind == "session.created":
            at[row.session_id] = State.IDLE.value
            continue
        before, after = row.data["from_state"], row.data["to_state"]
        known = at.get(row.session_id, before)
        if known != before or after not in TRANSITIONS[State(before)].values():
            words = f"{known} → ({before} → {after}) at event {row.seq}"
            yield Finding("illegal_order", words, row.session_id)
        at[row.session_id] = after
    for row in _rows(db, None, _sessions):
        if at.get(row.id, row.state) != row.state:
            words = f"the events end in {at[row.id]}, the session is {row.state}"
            yield Finding("illegal_order", words, row.id)


def runs(db: Db, record: Record) -> Iterator[Finding]:
    """One run at a time, each created once and ended once; none stays open in a session at rest."""
    active: dict[str, str] = {}
    ended: set[str] = set()
    kinds = _events.c.kind.in_(("run.created", "run.completed"))
    for row in _rows(db, kinds, _events, _events.c.session_id, _events.c.seq):
        run_id = row.data["run_id"]
        if row.kind == "run.created":
            if row.session_id in active:
                words = f"run {run_id} began while {active[row.session_id]} was going on"
                yield Finding("illegal_order", words, row.session_id)
            active[row.session_id] = run_id
            continue
        if run_id in ended or active.pop(row.session_id, None) != run_id:
            yield Finding("illegal_order", f"run {run_id} ended out of order", row.session_id)
        ended.add(run_id)
    at_rest = {
        row.id for row in _rows(db, _sessions.c.state.in_(("idle", "ended", "failed")), _sessions)
    }
    for row in _rows(db, None, _runs):
        if row.session_id in at_rest and row.state not in ENDED_RUNS:
            yield Finding("run_open", f"run {row.id} is {row.state}", row.session_id)
        if (row.state in ENDED_RUNS) != (row.id in ended):
            yield Finding("illegal_order", f"run {row.id}: row and events differ", row.session_id)


def stuck(db: Db, record: Record) -> Iterator[Finding]:
    """After the product was left in peace nothing runs any more."""
    for row in _rows(db, _sessions.c.state == "running", _sessions):
        yield Finding("session_stuck", "it still runs after everything came to rest", row.id)


def chains(db: Db, record: Record) -> Iterator[Finding]:
    """The audit log of every session is whole: no gap, no changed row."""
    for row in _rows(db, None, _sessions):
        broken = events.broken_link(db, row.id)
        if broken is not None:
            yield Finding("chain_broken", f"event {broken} does not follow", row.id)


def streams(db: Db, record: Record) -> Iterator[Finding]:
    """What a socket client saw is what is stored, without a gap and without a repeat."""
    for seen in record.seen:
        for channel in ("events", "output"):
            yield from _stream(db, seen, channel)


def rows(db: Db, record: Record) -> Iterator[Finding]:
    """Every acknowledged session, fork, checkpoint, compaction and terminal is stored."""
    known = {row.id: row for row in _rows(db, None, _sessions)}
    for one in record.acknowledged:
        if one.session_id not in known:
            yield Finding("session_lost", one.kind, one.session_id)
        elif one.kind == "fork" and known[one.session_id].forked_from != one.id:
            yield Finding("fork_lost", f"it does not come from {one.id}", one.session_id)
    for kind, model in ROWS_OF.items():
        there = {row.id for row in _rows(db, None, table(model))}
        for one in _of(record, kind):
            if one.id not in there:
                yield Finding(f"{kind}_lost", one.id, one.session_id)


def outcomes(db: Db, record: Record) -> Iterator[Finding]:
    """A cancelled run is over, a resumed checkpoint was resumed, a rolled back one went back."""
    runs = {row.id: row for row in _rows(db, None, _runs)}
    for one in _of(record, "cancel"):
        if one.id not in runs or runs[one.id].state not in ENDED_RUNS:
            yield Finding("cancel_lost", f"run {one.id} goes on", one.session_id)
    points = {row.id: row for row in _rows(db, None, table(Checkpoint))}
    for one in _of(record, "resume"):
        if one.id in points and points[one.id].resumed_at is None:
            yield Finding("resume_lost", f"checkpoint {one.id}", one.session_id)
    for one in _of(record, "rollback"):
        if one.id in points and not points[one.id].rolled_back:
            yield Finding("rollback_lost", f"checkpoint {one.id}", one.session_id)


def lines(record: Record, done: set[str]) -> list[Finding]:
    """A shell command ran at most once, and did run when its call says that it ended well."""
    written: Counter[str] = Counter()
    for path in set(record.lines.values()):
        if Path(path).exists():
            written.update(Path(path).read_text(encoding="utf-8").split())
    twice = [
        Finding("command_twice", f"{word} was written {written[word]} times")
        for word in record.lines
        if written[word] > 1
    ]
    missing = [
        Finding("command_lost", f"{word}: its call is done, its line is not there")
        for word in record.lines
        if written[word] == 0 and word in done
    ]
    return twice + missing


CHECKS: tuple[Callable[[Db, Record], Iterator[Finding]], ...] = (
    messages,
    states,
    runs,
    stuck,
    chains,
    streams,
    rows,
    outcomes,
)


def _stream(db: Db, seen: Seen, channel: str) -> Iterator[Finding]:
    expected = 1
    for seq, _ in seen.frames[channel]:
        if seq != expected:
            words = f"{channel} {seq} came where {expected} was due"
            yield Finding("gap_in_stream", words, seen.session_id)
            return
        expected += 1
    if not seen.is_whole(channel):
        words = f"{channel} ended at {seen.last(channel)} where {seen.due[channel]} was there"
        yield Finding("gap_in_stream", words, seen.session_id)
    source, kind = (_events, _events.c.kind) if channel == "events" else (_frames, _frames.c.type)
    stored = select(source.c.seq, kind).where(source.c.session_id == seen.session_id)
    kinds = {row[0]: row[1] for row in db.connection().execute(stored)}
    for seq, shown in seen.frames[channel]:
        # Frames are pruned after ten minutes, events never.
        if kinds.get(seq, shown if channel == "output" else None) != shown:
            words = f"{channel} {seq} was shown as {shown} and is stored as {kinds.get(seq)}"
            yield Finding("stream_differs", words, seen.session_id)
            return


def _done_commands(db: Db) -> set[str]:
    """Words of the shell calls that ended with exit code 0."""
    done: set[str] = set()
    for row in _rows(db, (_calls.c.tool_name == "shell") & (_calls.c.state == "done"), _calls):
        if isinstance(row.output, dict) and row.output.get("exit_code") == 0:
            done.update(str(row.input.get("command", "")).split())
    return done


def _of(record: Record, kind: str) -> list[Acknowledged]:
    return [one for one in record.acknowledged if one.kind == kind]


def _rows(db: Db, where: Any, source: Any, *order: Any) -> list[Any]:
    wanted = select(source)
    if where is not None:
        wanted = wanted.where(where)
    return list(db.connection().execute(wanted.order_by(*order)).all())
