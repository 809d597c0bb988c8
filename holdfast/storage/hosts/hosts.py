"""Hosts as the database knows them: who is there, who is away, and which sessions they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, func, select, update
from typing_extensions import TypedDict

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.domain.lifecycle import OVER
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import by_key, change, insert_once, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.database.tables_hosts import Execution, HostRow

_hosts, _sessions, _ptys = table(HostRow), table(SessionRow), table(Pty)
_executions = table(Execution)
# A worker says every few seconds that its host is there; three times unheard, it is away.
BEAT_S = 3.0
AWAY_AFTER_MS = 10_000
HOSTS_MAX = 1000
_BEAT = by_key(_hosts)
_NEWLY_AWAY = (
    update(_hosts)
    .where(_hosts.c.seen_at < bindparam("before"), _hosts.c.away_told.is_(False))
    .values(away_told=True)
    .returning(_hosts.c.id, _hosts.c.name)
)


class HostRefShown(TypedDict):
    """The host of a session."""

    id: str
    name: str
    state: str


class HostShown(HostRefShown):
    """A machine with a terminal host; `sessions` are those that are not over."""

    sessions: int
    terminals: int
    seen_at: int
    version: str


@dataclass(frozen=True)
class Seen:
    """What a worker says of the host beside it."""

    id: str
    name: str
    epoch: int
    address: str
    task_queue: str
    version: str


def register(db: Db, seen: Seen) -> None:
    """Note that a host is there, under what name and queue; its drain stays as it was."""
    values = {**seen.__dict__, "seen_at": now_ms()}
    fresh = {"draining": False, "leaving": False, "away_told": False}
    if not insert_once(db, HostRow, {**values, **fresh}):
        change(db, HostRow, seen.id, **{**values, "leaving": False})
    elif db.get_bind().dialect.name == "sqlite":
        _succeed(db, seen.id)


def _succeed(db: Db, host_id: str) -> None:
    """Take over from every other host: a file of SQLite belongs to one machine.

    A home that was brought back without the state of its terminal host gets a host with a new id.
    """
    connection = db.connection()
    other = _sessions.c.host_id != host_id
    connection.execute(update(_sessions).where(other).values(host_id=host_id))
    claimed = (_executions.c.host_id != host_id) & (_executions.c.state == "claimed")
    connection.execute(update(_executions).where(claimed).values(state="lost"))
    connection.execute(delete(_hosts).where(_hosts.c.id != host_id))


def beat(db: Db, host_id: str) -> None:
    """The host is still there."""
    change(db, HostRow, host_id, seen_at=now_ms(), leaving=False)


def leave(db: Db, host_id: str) -> None:
    """Its worker is being stopped: no session is placed there until the next one begins."""
    change(db, HostRow, host_id, leaving=True)


def drain(db: Db, host_id: str, *, draining: bool) -> HostRow:
    """Place no new session on the host, or place them there again."""
    get(db, host_id)
    change(db, HostRow, host_id, draining=draining)
    return get(db, host_id)


def find(db: Db, host_id: str) -> HostRow | None:
    """The host, or None."""
    row = db.connection().execute(select(_hosts).where(_hosts.c.id == host_id)).first()
    return None if row is None else HostRow(**row._mapping)


def get(db: Db, host_id: str) -> HostRow:
    """The host, or NotFound."""
    found = find(db, host_id)
    if found is None:
        raise NotFound("Host not found.")
    return found


def everywhere(db: Db) -> list[HostRow]:
    """Every host, by name."""
    rows = select(_hosts).order_by(_hosts.c.name, _hosts.c.id).limit(HOSTS_MAX)
    return [HostRow(**row._mapping) for row in db.connection().execute(rows)]


def state_of(host: HostRow | Row[Any]) -> str:
    """`up`, `draining` or `away`."""
    if host.seen_at < now_ms() - AWAY_AFTER_MS:
        return "away"
    return "draining" if host.draining or host.leaving else "up"


def away_ms(host: HostRow) -> int:
    """For how long nobody has heard of the host; 0 while it is there."""
    silent = now_ms() - host.seen_at
    return silent if silent > AWAY_AFTER_MS else 0


def candidates(db: Db) -> list[HostRow]:
    """Hosts that take new sessions, the one with the fewest live sessions first."""
    live = _sessions_of_hosts(db)
    up = [host for host in everywhere(db) if state_of(host) == "up"]
    return sorted(up, key=lambda host: (live.get(host.id, 0), host.id))


def give(db: Db, session_id: str, host_id: str) -> str:
    """Bind a session to a host unless it has one; the id of the host that it has now."""
    unbound = _sessions.c.host_id.is_(None)
    db.connection().execute(
        update(_sessions).where(_sessions.c.id == session_id, unbound).values(host_id=host_id)
    )
    found = select(_sessions.c.host_id).where(_sessions.c.id == session_id)
    return str(db.connection().execute(found).scalar_one())


def newly_away(db: Db) -> list[tuple[str, str]]:
    """Hosts that fell silent and whose sessions were not told: id and name, each once."""
    rows = db.connection().execute(_NEWLY_AWAY, {"before": now_ms() - AWAY_AFTER_MS})
    return [(str(row.id), str(row.name)) for row in rows]


def newly_back(db: Db, host_id: str) -> bool:
    """Whether the host's sessions must be told that it is back; true once."""
    told = _hosts.c.away_told.is_(True)
    taken = db.connection().execute(
        update(_hosts).where(_hosts.c.id == host_id, told).values(away_told=False)
    )
    return taken.rowcount == 1


def sessions_at_work(db: Db, host_id: str, *, limit: int = 10_000) -> list[str]:
    """The sessions of a host that run, wait or are paused: those that miss it."""
    rows = select(_sessions.c.id).where(
        _sessions.c.host_id == host_id, _sessions.c.state.in_(("running", "paused", "queued"))
    )
    return [str(row.id) for row in db.connection().execute(rows.limit(limit))]


def are_several(db: Db) -> bool:
    """Whether what is not on this machine may be on another."""
    known = db.connection().execute(select(_hosts.c.id).limit(2)).all()
    return len(known) > 1


def refs(db: Db, host_ids: Iterable[str | None]) -> dict[str, HostRefShown]:
    """Hosts as a session shows its own, by id."""
    wanted = {host_id for host_id in host_ids if host_id is not None}
    if not wanted:
        return {}
    rows = db.connection().execute(select(_hosts).where(_hosts.c.id.in_(wanted)))
    return {row.id: {"id": row.id, "name": row.name, "state": state_of(row)} for row in rows}


def shown(db: Db, operator_id: str | None) -> list[HostShown]:
    """Every host, with what it has of one operator's sessions, or of everybody's."""
    live = _sessions_of_hosts(db, operator_id)
    joined = _ptys.join(_sessions, _sessions.c.id == _ptys.c.session_id)
    rows = select(_ptys.c.host_id, func.count()).select_from(joined)
    rows = _of(operator_id, rows.where(_ptys.c.state != "closed"))
    found = db.connection().execute(rows.group_by(_ptys.c.host_id))
    terminals = {str(host): int(count) for host, count in found}
    return [
        {
            "id": host.id,
            "name": host.name,
            "state": state_of(host),
            "sessions": live.get(host.id, 0),
            "terminals": terminals.get(host.id, 0),
            "seen_at": host.seen_at,
            "version": host.version,
        }
        for host in everywhere(db)
    ]


def _sessions_of_hosts(db: Db, operator_id: str | None = None) -> dict[str, int]:
    over = [state.value for state in OVER]
    rows = _of(operator_id, select(_sessions.c.host_id, func.count())).where(
        _sessions.c.host_id.is_not(None), _sessions.c.state.not_in(over)
    )
    found = db.connection().execute(rows.group_by(_sessions.c.host_id))
    return {str(host): int(count) for host, count in found}


def _of(operator_id: str | None, rows: Select[Any]) -> Select[Any]:
    return rows if operator_id is None else rows.where(_sessions.c.created_by == operator_id)
