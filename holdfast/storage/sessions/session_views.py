"""Sessions as the wire shows them: one by one, and as pages that cost the same at any size.

To add a field, name a column of the row in StoredSession, or anything else in DerivedSession:
the SELECT, every answer and OpenAPI follow from these two.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NotRequired, cast

from sqlalchemy import ColumnElement, Select, and_, bindparam, or_, select, tuple_
from typing_extensions import TypedDict

from holdfast.domain.cages.shown import UNKNOWN, CageShown, MachineCage, described
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.lifecycle import State, allowed_actions
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Project, ProjectFileRow, Run, SessionRow
from holdfast.storage.database.tables_history import Lease
from holdfast.storage.hosts import hosts
from holdfast.storage.hosts.hosts import HostRefShown
from holdfast.storage.sessions.attention import AttentionShown
from holdfast.storage.sessions.leases import ATTACH, attach_lease, held

PREVIEW_CHARS = 63
QUEUED_REASON = "concurrency_limit"
_sessions, _projects, _files = table(SessionRow), table(Project), table(ProjectFileRow)
_leases, _runs = table(Lease), table(Run)


class UsageShown(TypedDict):
    """What a session has used."""

    # Columns of the session's row, like the fields of StoredSession.
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_calls: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None


class TroubleShown(TypedDict):
    """The provider did not answer: attempt `attempt` follows `next_in_ms` after `at`."""

    run_id: str
    attempt: int
    next_in_ms: int
    code: str
    message: str
    at: int


class LastRunShown(TypedDict):
    """The last run of a message that is over."""

    id: str
    state: str
    error: dict[str, Any] | None
    completed_at: int | None


class StoredSession(TypedDict):
    """The fields of a session that are columns of its row: each one is selected and sent."""

    id: str
    project_id: str
    created_by: str
    state: str
    title: str | None
    source: str
    mode: str
    created_at: int
    updated_at: int
    ended_at: int | None
    end_reason: str | None
    forked_from: str | None
    parent_session_id: str | None
    model_override: str | None
    bound_issue: str | None
    dsl_hash: str
    file_hash: str | None
    withheld: list[str] | None
    current_head: str | None
    active_run: str | None
    current_checkpoint: str | None
    message_count: int
    tool_call_count: int
    run_count: int
    failure: dict[str, Any] | None
    waiting: int
    archived: bool
    pinned: bool
    stuck_guard: bool
    working_directory: str
    cache_id: str | None
    last_active: int


class DerivedSession(TypedDict):
    """The fields of a session that `_view` works out; the type checker reports a missing one."""

    preview: str
    dsl_stale: bool
    attached: bool
    allowed_actions: list[str]
    usage: UsageShown
    cage: CageShown
    host: HostRefShown | None
    last_run: LastRunShown | None
    attention: AttentionShown | None
    trouble: TroubleShown | None
    queued: NotRequired[bool]
    reason: NotRequired[str | None]


class SessionShown(StoredSession, DerivedSession):
    """A session."""


_STORED, _USAGE = tuple(StoredSession.__annotations__), tuple(UsageShown.__annotations__)
_READ = ("host_id", "last_run_id", "attention", "trouble")
_COLUMNS = (*_STORED, "preview", *_USAGE, *_READ)
_HOST_ID, _LAST_RUN, _ATTENTION, _TROUBLE = range(len(_COLUMNS) - len(_READ), len(_COLUMNS))
_RUN, _NO_RUN = ("state", "error", "completed_at"), (None, None, None)
_values = attrgetter(*_COLUMNS)
_DSL_HASH, _FILE_HASH = _COLUMNS.index("dsl_hash"), _COLUMNS.index("file_hash")
# Project files are immutable by hash, so what one says about its cage never changes.
Cage = dict[str, Any] | Literal["disabled"]
_cages: dict[str, Cage] = {}
_CAGES_MAX = 1000
# Of a project's file now: its bytes, its meaning, of which sessions of old kept the hash, and what
# of it is in force.
Hashes = tuple[str | None, str | None, str | None]
_NO_PROJECT: Hashes = (None, None, None)


@dataclass(frozen=True)
class Filter:
    """Which sessions a list shows."""

    operator_id: str
    project_id: str | None = None
    state: str | None = None
    source: str | None = None
    q: str | None = None
    archived: bool = False
    attention: bool = False  # only those that need a person


class Machine:
    """The cage of the machine as the terminal host told it last; asking is not for the store."""

    cage: MachineCage = UNKNOWN


def view(db: Db, row: SessionRow) -> SessionShown:
    """One session, as API.md section 3 has it."""
    return views(db, [row])[0]


def views(db: Db, rows: list[SessionRow]) -> list[SessionShown]:
    """Several sessions with five queries in all, fewer where none has a host or a run."""
    attached = held(db, [attach_lease(row.id) for row in rows])
    current = _current_hashes(db, {row.project_id for row in rows})
    cages = _cages_of(db, {row.file_hash or row.dsl_hash for row in rows})
    known = hosts.refs(db, (row.host_id for row in rows))
    ended = _runs_by_id(db, {row.last_run_id for row in rows if row.last_run_id})
    return [
        _view(
            _values(row),
            attached=attach_lease(row.id) in attached,
            current=current.get(row.project_id, _NO_PROJECT),
            cages=cages,
            known=known,
            last_run=ended.get(row.last_run_id or "", _NO_RUN),
        )
        for row in rows
    ]


def page(
    db: Db, wanted: Filter, *, limit: int, cursor: str | None = None
) -> tuple[list[SessionShown], str | None]:
    """Sessions by newest activity, and where the next page begins."""
    at, session_id = (None, None) if cursor is None else read_cursor(cursor)
    chosen = _page(
        archived=wanted.archived,
        project=wanted.project_id is not None,
        state=wanted.state is not None,
        source=wanted.source is not None,
        attention=wanted.attention,
        further=cursor is not None,
    )
    if wanted.q:
        chosen = chosen.where(_matches(wanted.q))
    values = {
        "operator_id": wanted.operator_id,
        "project_id": wanted.project_id,
        "state": wanted.state,
        "source": wanted.source,
        "at": at,
        "session_id": session_id,
        "now": now_ms(),
        "count": limit + 1,
    }
    # Rows as they come: making a model of each would cost three times the rest.
    rows = [tuple(row) for row in db.connection().execute(chosen, values)]
    more = len(rows) > limit
    rows = rows[:limit]
    cages = _cages_of(db, {row[_FILE_HASH] or row[_DSL_HASH] for row in rows})
    known = hosts.refs(db, (row[_HOST_ID] for row in rows))
    found = [
        _view(
            row,
            attached=row[-4],
            current=row[-7:-4],
            cages=cages,
            known=known,
            last_run=row[-3:],
        )
        for row in rows
    ]
    following = make_cursor(found[-1]["last_active"], found[-1]["id"]) if more else None
    return found, following


def make_cursor(at: int, key: str) -> str:
    """An opaque place in a list."""
    return base64.urlsafe_b64encode(json.dumps([at, key]).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[int, str]:
    """The place that `make_cursor` wrote, or ValidationFailed."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, key = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        if not isinstance(key, str) or not 0 <= int(at) < 2**62:
            raise ValueError(cursor)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise ValidationFailed("cursor is not one that this server gave out") from None
    return int(at), key


@lru_cache(maxsize=64)
def _page(
    *, archived: bool, project: bool, state: bool, source: bool, attention: bool, further: bool
) -> Select[Any]:
    """One statement for a whole page, made once for each set of filters: making it is dear."""
    attach = and_(
        _leases.c.name == bindparam("attach", ATTACH) + _sessions.c.id,
        _leases.c.expires_at > bindparam("now"),
    )
    columns = (
        *(_sessions.c[name] for name in _COLUMNS),
        _projects.c.dsl_hash.label("current_hash"),
        _projects.c.dsl_meaning,
        _projects.c.file_hash.label("current_file"),
        _leases.c.name.is_not(None).label("attached"),
        *(_runs.c[name] for name in _RUN),
    )
    everything = _sessions.outerjoin(_projects, _projects.c.id == _sessions.c.project_id)
    everything = everything.outerjoin(_leases, attach)
    everything = everything.outerjoin(_runs, _runs.c.id == _sessions.c.last_run_id)
    chosen = select(*columns).select_from(everything)
    chosen = chosen.where(
        _sessions.c.created_by == bindparam("operator_id"),
        _sessions.c.archived.is_(archived),
        _sessions.c.purged.is_(False),
    )
    if project:
        chosen = chosen.where(_sessions.c.project_id == bindparam("project_id"))
    if state:
        chosen = chosen.where(_sessions.c.state == bindparam("state"))
    if source:
        chosen = chosen.where(_sessions.c.source == bindparam("source"))
    if attention:
        chosen = chosen.where(_sessions.c.attention_kind.is_not(None))
    if further:
        place = tuple_(_sessions.c.last_active, _sessions.c.id)
        chosen = chosen.where(place < tuple_(bindparam("at"), bindparam("session_id")))
    newest_first = (_sessions.c.last_active.desc(), _sessions.c.id.desc())
    return chosen.order_by(*newest_first).limit(bindparam("count"))


def _matches(text: str) -> ColumnElement[bool]:
    return or_(
        _sessions.c.title.icontains(text, autoescape=True),
        _sessions.c.preview.icontains(text, autoescape=True),
        _sessions.c.id == text.upper(),
    )


def _view(
    values: Sequence[Any],
    *,
    attached: bool,
    current: Hashes,
    cages: dict[str, Cage],
    known: dict[str, HostRefShown],
    last_run: Sequence[Any],
) -> SessionShown:
    """From the values of `_COLUMNS`, in their order."""
    stored = cast(StoredSession, dict(zip(_STORED, values, strict=False)))
    usage = cast(UsageShown, dict(zip(_USAGE, values[len(_STORED) + 1 :], strict=False)))
    dsl_hash, state = stored["dsl_hash"], State(stored["state"])
    derived: DerivedSession = {
        "preview": values[len(_STORED)][:PREVIEW_CHARS],
        "dsl_stale": current[0] is not None
        and (dsl_hash not in current[:2] or stored["file_hash"] not in (None, current[2])),
        "attached": bool(attached),
        "allowed_actions": _actions(stored, state),
        "usage": usage,
        "cage": described(cages.get(stored["file_hash"] or dsl_hash, "disabled"), Machine.cage),
        "host": known.get(values[_HOST_ID]),
        "last_run": _last_run(values[_LAST_RUN], last_run),
        "attention": values[_ATTENTION],
        "trouble": values[_TROUBLE],
    }
    if state is State.QUEUED:
        derived["queued"], derived["reason"] = True, QUEUED_REASON
    return {**stored, **derived}


def _actions(stored: StoredSession, state: State) -> list[str]:
    cleanly = stored["end_reason"] != "failed" and stored["failure"] is None
    actions = allowed_actions(state, cleanly_ended=cleanly)
    if stored["archived"]:
        return ["unarchive" if action == "archive" else action for action in actions]
    return actions


def _last_run(run_id: str | None, values: Sequence[Any]) -> LastRunShown | None:
    if run_id is None or values[0] is None:
        return None
    shown = {"id": run_id, **dict(zip(_RUN, values, strict=True))}
    return cast(LastRunShown, shown)


def _runs_by_id(db: Db, run_ids: set[str]) -> dict[str, Sequence[Any]]:
    if not run_ids:
        return {}
    rows = select(_runs.c.id, *(_runs.c[name] for name in _RUN)).where(_runs.c.id.in_(run_ids))
    return {row.id: tuple(row)[1:] for row in db.connection().execute(rows)}


def _current_hashes(db: Db, project_ids: set[str]) -> dict[str, Hashes]:
    names = ("id", "dsl_hash", "dsl_meaning", "file_hash")
    columns = [_projects.c[name] for name in names]
    rows = select(*columns).where(_projects.c.id.in_(project_ids))
    return {row.id: tuple(row)[1:] for row in db.connection().execute(rows)}


def _cages_of(db: Db, hashes: set[str]) -> dict[str, Cage]:
    missing = hashes - _cages.keys()
    if missing:
        if len(_cages) > _CAGES_MAX:
            _cages.clear()
            missing = hashes
        rows = select(_files.c.hash, _files.c.content).where(_files.c.hash.in_(missing))
        for row in db.connection().execute(rows):
            _cages[row.hash] = (row.content.get("primary") or {}).get("cage", "disabled")
    return _cages
