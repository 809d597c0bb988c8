"""Retention: what nobody used for long is archived, what ended long ago is pruned."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import select

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Refusal
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Meta
from holdfast.storage.upkeep import removal, session_changes
from holdfast.storage.upkeep.removal import DAY_MS

AT_ONCE_MAX = 500
RECORDS_MAX = 20
NAMED_MAX = 100
REASON = "retention"
_PREFIX = "retention:"
_AT_REST = (State.IDLE.value, State.ENDED.value, State.FAILED.value)
_sessions = table(SessionRow)


@dataclass(frozen=True)
class Rules:
    """After how many days; None is never."""

    archive_after_days: int | None = None
    prune_after_days: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A session whose time has come."""

    id: str
    operator_id: str
    title: str | None


@dataclass(frozen=True)
class Due:
    """What the rules say now."""

    archive: list[Candidate]
    prune: list[Candidate]


@dataclass
class Record:
    """What was done to one operator's sessions, or would have been."""

    at: int
    dry_run: bool
    archived: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As it is kept: ids alone, for what was pruned is gone, and no more than one reads."""
        return {
            "at": self.at,
            "dry_run": self.dry_run,
            "archived_count": len(self.archived),
            "pruned_count": len(self.pruned),
            "archived": self.archived[:NAMED_MAX],
            "pruned": self.pruned[:NAMED_MAX],
        }


def due(db: Db, rules: Rules, *, operator_id: str | None = None) -> Due:
    """What would go now, of one operator or of all; pinned sessions stay, and those at work."""
    prune = _ended(db, rules, operator_id)
    return Due(_unused(db, rules, operator_id, {one.id for one in prune}), prune)


def keep(store: OpenStore, rules: Rules, *, dry_run: bool = False) -> dict[str, Record]:
    """Do what is due, one transaction for each session; what was done, by operator.

    A dry run changes nothing but what it tells. Safe beside another worker that does the same.
    """
    found = store.read(lambda db: due(db, rules))
    now = now_ms()
    records: dict[str, Record] = defaultdict(lambda: Record(now, dry_run))
    for session in found.prune:
        if dry_run or _purged(store, session.id):
            records[session.operator_id].pruned.append(session.id)
    for session in found.archive:
        if dry_run or _archived(store, session.id):
            records[session.operator_id].archived.append(session.id)
    for operator_id, record in records.items():
        store.write(lambda db, who=operator_id, what=record: _tell(db, who, what))  # type: ignore[misc]
    return dict(records)


def view(db: Db, operator_id: str, rules: Rules) -> dict[str, Any]:
    """What is due now and what was done before, the newest first."""
    found = due(db, rules, operator_id=operator_id)
    return {
        **asdict(rules),
        "due": {
            "archive": [_named(one) for one in found.archive],
            "prune": [_named(one) for one in found.prune],
        },
        "done": _records(db, operator_id),
    }


def _ended(db: Db, rules: Rules, operator_id: str | None) -> list[Candidate]:
    if rules.prune_after_days is None:
        return []
    found = removal.prunable(db, operator_id, older_than_days=rules.prune_after_days)
    return [Candidate(one.id, one.operator_id, one.title) for one in found[:AT_ONCE_MAX]]


def _unused(db: Db, rules: Rules, operator_id: str | None, without: set[str]) -> list[Candidate]:
    if rules.archive_after_days is None:
        return []
    rows = select(_sessions.c.id, _sessions.c.created_by, _sessions.c.title).where(
        _sessions.c.state.in_(_AT_REST),
        _sessions.c.last_active < now_ms() - rules.archive_after_days * DAY_MS,
        _sessions.c.archived.is_(False),
        _sessions.c.pinned.is_(False),
        _sessions.c.purged.is_(False),
    )
    if operator_id is not None:
        rows = rows.where(_sessions.c.created_by == operator_id)
    chosen = db.connection().execute(rows.order_by(_sessions.c.last_active).limit(AT_ONCE_MAX))
    return [Candidate(*row) for row in chosen if row.id not in without]


def _purged(store: OpenStore, session_id: str) -> bool:
    """Whether it went: somebody may use it again, or have been quicker."""
    try:
        removal.purge(store, session_id)
    except Refusal:
        return False
    return True


def _archived(store: OpenStore, session_id: str) -> bool:
    """Whether it was hidden."""

    def archive(db: Db) -> None:
        session_changes.archive(db, session_id, archived=True, user_id="", reason=REASON)

    try:
        store.write(archive)
    except Refusal:
        return False
    return True


def _named(session: Candidate) -> dict[str, Any]:
    return {"id": session.id, "title": session.title}


def _tell(db: Db, operator_id: str, record: Record) -> None:
    """Keep the record; the same dry run again says nothing new."""
    known, told = _records(db, operator_id), record.told()
    if record.dry_run and known and {**known[0], "at": 0} == {**told, "at": 0}:
        return
    value = json.dumps([told, *known][:RECORDS_MAX], ensure_ascii=False)
    db.merge(Meta(key=f"{_PREFIX}{operator_id}", value=value))


def _records(db: Db, operator_id: str) -> list[dict[str, Any]]:
    found = db.get(Meta, f"{_PREFIX}{operator_id}")
    records: list[dict[str, Any]] = [] if found is None else json.loads(found.value)
    return records
