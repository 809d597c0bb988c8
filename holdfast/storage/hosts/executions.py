"""At most once: a call is claimed for one life of one host before its process is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import bindparam, delete, select, update

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.database.tables_hosts import Execution

_executions, _calls = table(Execution), table(ToolCallRow)
KEPT_MS = 7 * 86_400_000
_OF_CALL = select(_executions).where(_executions.c.call_id == bindparam("call"))
_SETTLE = (
    update(_executions)
    .where(_executions.c.call_id == bindparam("call"), _executions.c.state == "claimed")
    .values(state=bindparam("outcome"))
)


class Verdict(StrEnum):
    """What whoever claimed a call may do with it."""

    START = "start"  # nobody was told before
    ATTACH = "attach"  # this life of this host was told before
    RESTARTED = "restarted"  # an earlier life of this host was told, and is over
    ELSEWHERE = "elsewhere"  # another host was told
    LOST = "lost"  # another host was told, and is gone for good


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; the host, epoch and time are those of the first one."""

    verdict: Verdict
    host_id: str
    epoch: int
    age_ms: int = 0


def claim(db: Db, call_id: str, session_id: str, host_id: str, epoch: int) -> Claim:
    """Claim a call for this life of this host, in the transaction that marks it started."""
    now = now_ms()
    values = {"call_id": call_id, "session_id": session_id, "host_id": host_id, "epoch": epoch}
    if insert_once(db, Execution, {**values, "state": "claimed", "claimed_at": now}):
        return Claim(Verdict.START, host_id, epoch)
    found = db.connection().execute(_OF_CALL, {"call": call_id}).one()
    verdict = _verdict(found.host_id == host_id, found.epoch == epoch, found.state)
    if verdict is Verdict.RESTARTED:
        lose(db, call_id)
    return Claim(verdict, found.host_id, found.epoch, max(0, now - found.claimed_at))


def _verdict(same_host: bool, same_epoch: bool, state: str) -> Verdict:
    if not same_host:
        return Verdict.LOST if state == "lost" else Verdict.ELSEWHERE
    return Verdict.ATTACH if same_epoch else Verdict.RESTARTED


def release(db: Db, call_id: str) -> None:
    """Give a claim back whose host said for certain that it started nothing."""
    db.connection().execute(delete(_executions).where(_executions.c.call_id == call_id))


def settle(db: Db, call_id: str) -> None:
    """The call has its result."""
    db.connection().execute(_SETTLE, {"call": call_id, "outcome": "done"})


def lose(db: Db, call_id: str) -> bool:
    """Nobody will ever know whether it finished; whether it was open until now."""
    taken = db.connection().execute(_SETTLE, {"call": call_id, "outcome": "lost"})
    return taken.rowcount == 1


def find(db: Db, call_id: str) -> Execution | None:
    """The claim of a call, or None when no host was told to start it."""
    row = db.connection().execute(_OF_CALL, {"call": call_id}).first()
    return None if row is None else Execution(**row._mapping)


def open_of_session(db: Db, session_id: str) -> list[str]:
    """The calls of a session that a host was told to start and that have no result yet."""
    rows = select(_executions.c.call_id).where(
        _executions.c.session_id == session_id, _executions.c.state == "claimed"
    )
    return [str(row.call_id) for row in db.connection().execute(rows)]


def sweep(db: Db) -> int:
    """Forget claims that were settled long ago; how many."""
    old = _executions.c.claimed_at < now_ms() - KEPT_MS
    gone = db.connection().execute(delete(_executions).where(old, _executions.c.state != "claimed"))
    return gone.rowcount
