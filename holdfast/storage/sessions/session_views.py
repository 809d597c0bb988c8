"""Sessions as the wire shows them: one by one, and as pages that cost the same at any size."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, or_, select, tuple_

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.lifecycle import State, allowed_actions
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Project, ProjectFileRow, SessionRow
from holdfast.storage.database.tables_history import Lease
from holdfast.storage.sessions.leases import ATTACH, attach_lease, held

PREVIEW_CHARS = 63
QUEUED_REASON = "concurrency_limit"
_sessions, _projects, _files = table(SessionRow), table(Project), table(ProjectFileRow)
_leases = table(Lease)
_USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_calls",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
)
_SHOWN = (
    "id",
    "project_id",
    "created_by",
    "state",
    "title",
    "source",
    "mode",
    "created_at",
    "updated_at",
    "ended_at",
    "end_reason",
    "forked_from",
    "parent_session_id",
    "model_override",
    "bound_issue",
    "dsl_hash",
    "current_head",
    "active_run",
    "current_checkpoint",
    "message_count",
    "tool_call_count",
    "run_count",
    "failure",
    "archived",
    "pinned",
    "working_directory",
    "last_active",
)
_COLUMNS = (*_SHOWN, "preview", *_USAGE)
_values = attrgetter(*_COLUMNS)
_DSL_HASH = _COLUMNS.index("dsl_hash")
# Project files are immutable by hash, so what one says about its cage never changes.
_cages: dict[str, str] = {}
_CAGES_MAX = 1000


@dataclass(frozen=True)
class Filter:
    """Which sessions a list shows."""

    operator_id: str
    project_id: str | None = None
    state: str | None = None
    source: str | None = None
    q: str | None = None
    archived: bool = False


def view(db: Db, row: SessionRow) -> dict[str, Any]:
    """One session, as API.md section 3 has it."""
    return views(db, [row])[0]


def views(db: Db, rows: list[SessionRow]) -> list[dict[str, Any]]:
    """Several sessions with three queries in all."""
    attached = held(db, [attach_lease(row.id) for row in rows])
    current = _current_hashes(db, {row.project_id for row in rows})
    cages = _cages_of(db, {row.dsl_hash for row in rows})
    return [
        _view(
            _values(row),
            attached=attach_lease(row.id) in attached,
            current_hash=current.get(row.project_id),
            cages=cages,
        )
        for row in rows
    ]


def page(
    db: Db, wanted: Filter, *, limit: int, cursor: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Sessions by newest activity, and where the next page begins."""
    at, session_id = (None, None) if cursor is None else read_cursor(cursor)
    chosen = _page(
        archived=wanted.archived,
        project=wanted.project_id is not None,
        state=wanted.state is not None,
        source=wanted.source is not None,
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
    cages = _cages_of(db, {row[_DSL_HASH] for row in rows})
    found = [_view(row, attached=row[-1], current_hash=row[-2], cages=cages) for row in rows]
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
    *, archived: bool, project: bool, state: bool, source: bool, further: bool
) -> Select[Any]:
    """One statement for a whole page, made once for each set of filters: making it is dear."""
    attach = and_(
        _leases.c.name == bindparam("attach", ATTACH) + _sessions.c.id,
        _leases.c.expires_at > bindparam("now"),
    )
    columns = (
        *(_sessions.c[name] for name in _COLUMNS),
        _projects.c.dsl_hash.label("current_hash"),
        _leases.c.name.is_not(None).label("attached"),
    )
    everything = _sessions.outerjoin(_projects, _projects.c.id == _sessions.c.project_id)
    chosen = select(*columns).select_from(everything.outerjoin(_leases, attach))
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
    values: Sequence[Any], *, attached: bool, current_hash: str | None, cages: dict[str, str]
) -> dict[str, Any]:
    """From the values of `_COLUMNS`, in their order."""
    shown: dict[str, Any] = dict(zip(_SHOWN, values, strict=False))
    dsl_hash, state = shown["dsl_hash"], State(shown["state"])
    shown |= {
        "preview": values[len(_SHOWN)][:PREVIEW_CHARS],
        "dsl_stale": current_hash is not None and dsl_hash != current_hash,
        "attached": bool(attached),
        "allowed_actions": _actions(shown, state),
        "usage": dict(zip(_USAGE, values[len(_SHOWN) + 1 :], strict=False)),
        "cage": cages.get(dsl_hash, "disabled"),
    }
    if state is State.QUEUED:
        shown |= {"queued": True, "reason": QUEUED_REASON}
    return shown


def _actions(shown: dict[str, Any], state: State) -> list[str]:
    cleanly = shown["end_reason"] != "failed" and shown["failure"] is None
    actions = allowed_actions(state, cleanly_ended=cleanly)
    if shown["archived"]:
        return ["unarchive" if action == "archive" else action for action in actions]
    return actions


def _current_hashes(db: Db, project_ids: set[str]) -> dict[str, str]:
    rows = select(_projects.c.id, _projects.c.dsl_hash).where(_projects.c.id.in_(project_ids))
    return {row.id: row.dsl_hash for row in db.connection().execute(rows)}


def _cages_of(db: Db, hashes: set[str]) -> dict[str, str]:
    missing = hashes - _cages.keys()
    if missing:
        if len(_cages) > _CAGES_MAX:
            _cages.clear()
            missing = hashes
        rows = select(_files.c.hash, _files.c.content).where(_files.c.hash.in_(missing))
        for row in db.connection().execute(rows):
            cage = (row.content.get("primary") or {}).get("cage", "disabled")
            _cages[row.hash] = "disabled" if cage == "disabled" else "enabled"
    return _cages
