"""How a fork sees its source: level by level, each as it was when the next one left it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, bindparam, or_, select
from typing_extensions import TypedDict

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, table
from holdfast.storage.database.tables import Supersession
from holdfast.storage.database.tables_history import Derivation

_derivations, _supersessions = table(Derivation), table(Supersession)
LEVELS_MAX = 1000
_SOURCE = select(_derivations).where(_derivations.c.target_session == bindparam(KEY))


@dataclass(frozen=True)
class Level:
    """One session of the chain, with how much of it is seen."""

    session_id: str
    cutoff_seq: int | None  # None: everything
    cutoff_change: int | None  # None: as it is now


class CauseShown(TypedDict):
    """Why a message no longer counts."""

    cause: str
    cause_id: str


def levels(db: Db, session_id: str) -> list[Level]:
    """The session itself first, then its source, then that one's source."""
    chain = [Level(session_id, None, None)]
    seq: int | None = None
    while len(chain) <= LEVELS_MAX:
        edge = db.connection().execute(_SOURCE, {KEY: chain[-1].session_id}).first()
        if edge is None:
            return chain
        seq = edge.cutoff_seq if seq is None else min(seq, edge.cutoff_seq)
        chain.append(Level(edge.source_session, seq, edge.cutoff_change))
    return chain


def live(level: Level) -> ColumnElement[bool]:
    """The supersessions of this level that hold at its cutoff."""
    mine = _supersessions.c.session_id == level.session_id
    if level.cutoff_change is None:
        return mine & _supersessions.c.undone_change.is_(None)
    return (
        mine
        & (_supersessions.c.change <= level.cutoff_change)
        & or_(
            _supersessions.c.undone_change.is_(None),
            _supersessions.c.undone_change > level.cutoff_change,
        )
    )


def live_in(chain: list[Level]) -> ColumnElement[bool]:
    """The supersessions that hold anywhere in the chain."""
    return or_(*(live(level) for level in chain))


def superseded(db: Db, chain: list[Level]) -> dict[str, list[CauseShown]]:
    """Every superseded message that the chain sees, with its causes."""
    causes: dict[str, list[CauseShown]] = {}
    for level in chain:
        rows = select(
            _supersessions.c.message_id, _supersessions.c.cause, _supersessions.c.cause_id
        ).where(live(level))
        for row in db.connection().execute(rows.order_by(_supersessions.c.number)):
            causes.setdefault(row.message_id, []).append(
                {"cause": row.cause, "cause_id": row.cause_id}
            )
    return causes
