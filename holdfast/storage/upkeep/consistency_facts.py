"""Whether the facts around calls, subagents, snapshots and forks are whole and agree.

Rows that an older build wrote have no value in the newer columns. The migration fills what every
row must have; elsewhere an absent value is no issue.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, exists, select, union

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call, SessionRow, SubagentInvocation
from holdfast.storage.database.tables_history import Checkpoint, Derivation, Head
from holdfast.storage.moves import heads
from holdfast.storage.sessions import requests
from holdfast.storage.upkeep.consistency_heads import IssueFound
from holdfast.storage.upkeep.consistency_links import Link

# Decision 20: subagents are the only kind. Older builds called a leaf call after its purpose.
INVOCATION_TYPES = ("subagent",)
LEAF_TYPES = (requests.LEAF, "compaction")
INVOCATION_HEADS = (
    "caller_head_before",
    "caller_head_after",
    "callee_head_before",
    "callee_head_after",
)
_sessions, _heads, _checkpoints = table(SessionRow), table(Head), table(Checkpoint)
_calls, _invocations, _derivations = table(Call), table(SubagentInvocation), table(Derivation)

FACT_LINKS = (
    *(Link("invocation-head-missing", _invocations, name, _heads) for name in INVOCATION_HEADS),
    Link("invocation-callee-missing", _invocations, "callee_session", _sessions),
    # What the seeds call "attach" is a fork here: a session that goes on from another one.
    Link("attach-source-session-missing", _sessions, "forked_from", _sessions, session="id"),
)
# Each answers the id and the session of rows that are wrong.
FACT_QUERIES: dict[str, Select[Any]] = {
    "leaf-call-has-invocation": select(_calls.c.id, _calls.c.session_id).where(
        _calls.c.type.in_(LEAF_TYPES),
        _calls.c.id.in_(union(select(_invocations.c.id), select(_invocations.c.tool_call_id))),
    ),
    "invalid-invocation-type": select(_invocations.c.id, _invocations.c.session_id).where(
        _invocations.c.type.not_in(INVOCATION_TYPES)
    ),
    "head-snapshot-id-missing": select(_heads.c.id, _heads.c.session_id).where(
        _heads.c.snapshot_ref.is_not(None), _heads.c.checkpoint_id.is_(None)
    ),
    # The checkpoints of a purged session are gone; a fork's heads still name them.
    "head-snapshot-ref-missing": select(_heads.c.id, _heads.c.session_id).where(
        _heads.c.snapshot_ref.is_(None),
        exists().where(_checkpoints.c.id == _heads.c.checkpoint_id),
    ),
    "attach-source-head-missing": select(_derivations.c.id, _derivations.c.target_session).where(
        _derivations.c.source_head.is_not(None),
        ~exists().where(
            _heads.c.id == _derivations.c.source_head,
            _heads.c.session_id == _derivations.c.source_session,
        ),
    ),
    "session-cache-id-missing": select(_sessions.c.id, _sessions.c.id).where(
        _sessions.c.cache_id.is_(None)
    ),
    "head-cache-id-missing": select(_heads.c.id, _heads.c.session_id).where(
        _heads.c.cache_id.is_(None)
    ),
}
SNAPSHOTS = (
    select(
        _heads.c.id,
        _heads.c.session_id,
        _heads.c.snapshot_ref,
        *(_checkpoints.c[name] for name in heads.SNAPSHOT_FACTS),
    )
    .join(_checkpoints, _checkpoints.c.id == _heads.c.checkpoint_id)
    .where(_heads.c.snapshot_ref.is_not(None))
    .order_by(_heads.c.id)
)


def fact_issues(db: Db, *, limit: int) -> list[IssueFound]:
    """What SQL alone finds, at most `limit` issues of each type."""
    found = []
    for issue, rows in FACT_QUERIES.items():
        for row in db.connection().execute(rows.limit(limit)):
            found.append(IssueFound(issue, row[0], row[1]))
    return found


def snapshot_issue(row: Any) -> IssueFound | None:
    """Whether a row of SNAPSHOTS has the hash of what its checkpoint holds."""
    if row.snapshot_ref == heads.snapshot_ref(row):
        return None
    return IssueFound("head-snapshot-ref-mismatch", row.id, row.session_id)
