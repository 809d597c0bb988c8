"""Leases: the right to be the only one, until it expires. A dead holder frees it by waiting."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, or_, select, update

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_history import Lease

_leases = table(Lease)


ATTACH = "attach:"


def attach_lease(session_id: str) -> str:
    """The name of the lease that the session's one attached operator holds."""
    return f"{ATTACH}{session_id}"


def acquire(db: Db, name: str, holder: str, *, life_ms: int) -> bool:
    """Take the lease if it is free, expired or one's own."""
    now = now_ms()
    if insert_once(db, Lease, {"name": name, "holder": holder, "expires_at": now + life_ms}):
        return True
    taken = db.connection().execute(
        update(_leases)
        .where(
            _leases.c.name == name,
            or_(_leases.c.expires_at <= now, _leases.c.holder == holder),
        )
        .values(holder=holder, expires_at=now + life_ms)
    )
    return taken.rowcount == 1


def renew_all(db: Db, process: str, *, life_ms: int) -> int:
    """Prolong every lease that this process holds; how many there are."""
    renewed = db.connection().execute(
        update(_leases)
        .where(_leases.c.holder.startswith(f"{process}/", autoescape=True))
        .values(expires_at=now_ms() + life_ms)
    )
    return renewed.rowcount


def release(db: Db, name: str, holder: str) -> bool:
    """Give the lease back; False when somebody else has it by now."""
    gone = db.connection().execute(
        delete(_leases).where(_leases.c.name == name, _leases.c.holder == holder)
    )
    return gone.rowcount == 1


def release_process(db: Db, process: str) -> int:
    """Free everything that a process held that is known to be dead."""
    gone = db.connection().execute(
        delete(_leases).where(_leases.c.holder.startswith(f"{process}/", autoescape=True))
    )
    return gone.rowcount


def attached_by(db: Db, process: str, *, limit: int = 10_000) -> list[str]:
    """The sessions that somebody is attached to through this process."""
    ours = _leases.c.holder.startswith(f"{process}/", autoescape=True)
    rows = select(_leases.c.name).where(ours, _leases.c.name.startswith(ATTACH)).limit(limit)
    return [str(row.name).removeprefix(ATTACH) for row in db.connection().execute(rows)]


def holder(db: Db, name: str) -> str | None:
    """Who holds the lease now."""
    row = select(_leases.c.holder).where(_leases.c.name == name, _leases.c.expires_at > now_ms())
    found = db.connection().execute(row).scalar()
    return None if found is None else str(found)


def held(db: Db, names: Iterable[str]) -> set[str]:
    """Those of `names` that somebody holds now."""
    rows = select(_leases.c.name).where(
        _leases.c.name.in_(list(names)), _leases.c.expires_at > now_ms()
    )
    return {str(row.name) for row in db.connection().execute(rows)}


def holders(db: Db, *, limit: int = 10_000) -> list[str]:
    """Everybody who holds some lease, or whose lease expired and was not taken over."""
    rows = select(_leases.c.holder).distinct().limit(limit)
    return [str(row.holder) for row in db.connection().execute(rows)]
