"""Whether the store agrees with itself: quick by SQL alone, deep by reading every blob and hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Select, func, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.database.tables_history import Blob, EventRow, Head
from holdfast.storage.log import events
from holdfast.storage.upkeep.consistency_facts import (
    FACT_LINKS,
    SNAPSHOTS,
    fact_issues,
    snapshot_issue,
)
from holdfast.storage.upkeep.consistency_heads import IssueFound, head_issues
from holdfast.storage.upkeep.consistency_links import LINKS, Link

MODES = ("quick", "deep")
ISSUES_MAX = 1000
BATCH = 500
_blobs, _sessions, _heads = table(Blob), table(SessionRow), table(Head)
_messages, _events = table(Message), table(EventRow)


@dataclass(frozen=True)
class Dangling:
    """Every row with one kind of reference that names nothing."""

    type: str
    count: int
    words: str


@dataclass
class Report:
    """What was counted and what was found; at most `ISSUES_MAX` issues are listed."""

    mode: str
    counts: dict[str, int] = field(default_factory=dict)
    issues: list[IssueFound] = field(default_factory=list)
    issue_count: int = 0
    # How many rows of each kind name what is missing, in words: all of them, listed or not.
    dangling: list[Dangling] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # The sessions whose rows are told of; None means everybody's.
    own: frozenset[str] | None = None

    def add(self, issue: IssueFound) -> None:
        """One more issue, if it is the caller's to know."""
        if self.own is not None and issue.session_id not in self.own:
            return
        self.issue_count += 1
        if len(self.issues) < ISSUES_MAX:
            self.issues.append(issue)

    def view(self) -> dict[str, Any]:
        """The answer of F-037."""
        return {
            "kind": "store",
            "mode": self.mode,
            "status": "issues" if self.issue_count else "ok",
            "counts": self.counts,
            "issue_count": self.issue_count,
            "issues": [asdict(issue) for issue in self.issues],
            "dangling": [asdict(kind) for kind in self.dangling],
            "warnings": self.warnings,
        }


def check(store: OpenStore, mode: str = "deep", *, operator_id: str | None = None) -> Report:
    """Check everything. It only reads, in short transactions, so work goes on meanwhile.

    With an operator, only what is in that operator's sessions is counted and told (K-002).
    """
    assert mode in MODES, mode
    own = None if operator_id is None else store.read(partial(_own, operator_id))
    report = Report(mode, warnings=store.warnings(), own=own)
    report.counts = store.read(partial(_counts, operator_id))
    for link in (*LINKS, *FACT_LINKS):
        found = store.read(partial(_dangling, link, operator_id))
        for issue in found:
            report.add(issue)
        if found:
            count = store.read(partial(_dangling_count, link, operator_id))
            report.dangling.append(Dangling(link.issue, count, link.words(count)))
    for issue in store.read(partial(fact_issues, limit=ISSUES_MAX)):
        report.add(issue)
    for issue in store.read(_low_counters):
        report.add(issue)
    if mode == "deep":
        for issue in _deep(store):
            report.add(issue)
    return report


def _deep(store: OpenStore) -> Iterator[IssueFound]:
    for batch in _pages(store, select(_blobs).order_by(_blobs.c.id), "id"):
        for row in batch:
            yield from _blob_issues(store, row)
    for batch in _pages(store, select(_heads).order_by(_heads.c.id), "id"):
        for row in batch:
            yield from head_issues(store, Head(**row._mapping))
    for batch in _pages(store, SNAPSHOTS, "id"):
        yield from filter(None, map(snapshot_issue, batch))
    for batch in _pages(store, select(_sessions.c.id).order_by(_sessions.c.id), "id"):
        for row in batch:
            broken = store.read(partial(_broken_link, row.id))
            if broken is not None:
                yield IssueFound("event-chain-broken", str(broken), row.id)


def _pages(store: OpenStore, rows: Select[Any], key: str) -> Iterator[list[Any]]:
    """Rows in order of their key, a batch per transaction."""
    column = rows.selected_columns[key]
    last = ""
    while True:
        page = rows.where(column > last).limit(BATCH)
        batch = store.read(partial(_fetch, page))
        if not batch:
            return
        yield batch
        last = getattr(batch[-1], key)


def _fetch(rows: Select[Any], db: Db) -> list[Any]:
    return list(db.connection().execute(rows))


def _broken_link(session_id: str, db: Db) -> int | None:
    return events.broken_link(db, session_id)


def _own(operator_id: str, db: Db) -> frozenset[str]:
    rows = select(_sessions.c.id).where(_sessions.c.created_by == operator_id)
    return frozenset(db.connection().execute(rows).scalars())


def _counts(operator_id: str | None, db: Db) -> dict[str, int]:
    """How many rows of each kind; blobs are nobody's, so one operator is not told of them."""
    places = {"messages": _messages, "events": _events, "heads": _heads}
    counts = {"sessions": select(func.count()).select_from(_sessions)}
    counts |= {name: select(func.count()).select_from(place) for name, place in places.items()}
    if operator_id is None:
        counts["blobs"] = select(func.count()).select_from(_blobs)
    else:
        mine = _sessions.c.created_by == operator_id
        counts["sessions"] = counts["sessions"].where(mine)
        for name, place in places.items():
            joined = place.join(_sessions, _sessions.c.id == place.c.session_id)
            counts[name] = select(func.count()).select_from(joined).where(mine)
    return {name: db.connection().execute(count).scalar_one() for name, count in counts.items()}


def _dangling(link: Link, operator_id: str | None, db: Db) -> list[IssueFound]:
    """Rows whose reference names nothing."""
    source = link.source
    rows = select(source.c[link.key].label("key"), source.c[link.session].label("session"))
    found = db.connection().execute(_naming_nothing(rows, link, operator_id).limit(ISSUES_MAX))
    return [IssueFound(link.issue, str(row.key), row.session) for row in found]


def _dangling_count(link: Link, operator_id: str | None, db: Db) -> int:
    rows = select(func.count()).select_from(link.source)
    return int(db.connection().execute(_naming_nothing(rows, link, operator_id)).scalar_one())


def _naming_nothing(rows: Select[Any], link: Link, operator_id: str | None) -> Select[Any]:
    source, target = link.source, link.target.alias()
    named = source.c[link.column]
    rows = rows.where(named.is_not(None), named != "")
    rows = rows.where(~select(target.c.id).where(target.c.id == named).exists())
    if operator_id is not None:
        owned = _sessions.alias()
        mine = select(owned.c.id).where(owned.c.created_by == operator_id)
        rows = rows.where(source.c[link.session].in_(mine))
    return rows if link.only is None else rows.where(link.only)


def _low_counters(db: Db) -> list[IssueFound]:
    """Sessions that would give out a message number twice."""
    highest = (
        select(_messages.c.session_id, func.max(_messages.c.seq).label("seq"))
        .group_by(_messages.c.session_id)
        .subquery()
    )
    rows = (
        select(_sessions.c.id)
        .join(highest, highest.c.session_id == _sessions.c.id)
        .where(highest.c.seq > _sessions.c.message_seq)
        .limit(ISSUES_MAX)
    )
    ids = db.connection().execute(rows).scalars()
    return [IssueFound("message-counter-too-low", one, one) for one in ids]


def _blob_issues(store: OpenStore, row: Any) -> Iterator[IssueFound]:
    if not store.blobs.exists(row.id):
        yield IssueFound("blob/missing", row.id)
    elif store.blobs.damaged(row.id):
        yield IssueFound("blob/hash-mismatch", row.id)
