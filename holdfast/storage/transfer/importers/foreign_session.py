"""A session of another program, in neutral words, and how it becomes rows of ours.

An importer of a foreign format yields these; ids are made from the program's own, so that the same
session is never stored twice for one operator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import insert
from ulid import ULID

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.events import SessionCreated, SessionImported
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import Call, Message, SessionRow
from holdfast.storage.log import events
from holdfast.storage.projects import projects, quotas
from holdfast.storage.sessions import aliases, purged_workflows, sessions, supersessions, titles
from holdfast.storage.transfer.importers.importer import Imported

FOLDER = "imported"
PREVIEW_CHARS = 63
SOURCE_CHARS = 64
MESSAGES_MAX = 200_000
INSERT_ROWS = 200
_messages = table(Message)
_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


@dataclass(frozen=True)
class ForeignMessage:
    """One message; `role` is one of ours, and `meta` keeps what has no column."""

    native_id: str
    role: Literal["operator", "primary", "tool", "system"]
    content: str
    at_ms: int
    model: str | None = None
    tokens: int = 0
    # Each has an `id`, a `name` and `arguments`.
    tool_calls: Sequence[dict[str, Any]] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    superseded_by: Literal["rollback", "compaction"] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignUsage:
    """What a session, or one model in it, took."""

    model: str | None = None
    provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    cost_source: str | None = None

    def tokens(self) -> dict[str, Any]:
        """The counters, as sessions and calls have them."""
        return {name: getattr(self, name) for name in _TOKENS}


@dataclass(frozen=True)
class Parent:
    """The session that this one goes on from; named only if it is imported before this one."""

    native_id: str
    started_ms: int


@dataclass(frozen=True)
class ForeignSession:
    """A session with everything that we keep of it; at most `MESSAGES_MAX` messages."""

    origin: str
    native_id: str
    started_ms: int
    messages: Sequence[ForeignMessage]
    ended_ms: int | None = None
    end_reason: str | None = None
    title: str | None = None
    title_source: Literal["user", "auto"] | None = None
    source: str | None = None
    parent: Parent | None = None
    archived: bool = False
    pinned: bool = False
    api_calls: int = 0
    usage: ForeignUsage = ForeignUsage()
    # Where the program says so; without, all usage is the model's of `usage`.
    usage_by_model: Sequence[ForeignUsage] = ()

    def write(self, store: OpenStore, operator_id: str) -> Imported:
        """Store it; another import of the same session adds nothing."""
        clean = _without_nul(self)
        return store.write(lambda db: _write(db, store.home, operator_id, clean))


def ulid_of(origin: str, kind: str, native_id: str, at_ms: int) -> str:
    """The same id for the same thing, whenever it is imported."""
    digest = hashlib.sha256(f"{origin}:{kind}:{native_id}".encode()).digest()
    return str(ULID.from_int((max(at_ms, 0) << 80) | int.from_bytes(digest[:10], "big")))


def _session_id(origin: str, operator_id: str, native_id: str, started_ms: int) -> str:
    return ulid_of(origin, "session", f"{operator_id}:{native_id}", started_ms)


def _write(db: Db, home: Path, operator_id: str, given: ForeignSession) -> Imported:
    session_id = _session_id(given.origin, operator_id, given.native_id, given.started_ms)
    known = sessions.find(db, session_id)
    if known is not None:
        return {"session_id": session_id, "imported": False, "messages": known.message_count}
    quotas.require_room(db, operator_id, "sessions")
    project = projects.load_in_home(db, home, operator_id, FOLDER, given.origin)
    session = _session(db, operator_id, session_id, given)
    session.project_id, session.working_directory = project.id, project.path
    session.dsl_hash, session.file_hash = project.dsl_hash, project.file_hash
    purged_workflows.drop(db, session_id)
    insert_once(db, SessionRow, session.model_dump())
    _write_messages(db, session, given)
    for call in _calls(session, given):
        insert_once(db, Call, call.model_dump())
    with suppress(ValidationFailed, Conflict):
        aliases.put(db, operator_id, given.native_id, session_id)
    created = SessionCreated(
        session_id=session_id, project_id=project.id, user_id=operator_id, forked_from=None
    )
    brought = SessionImported(
        session_id=session_id,
        origin=given.origin,
        origin_id=given.native_id,
        messages=len(given.messages),
    )
    events.append(db, session_id, created, brought, row=("session", session_id))
    return {"session_id": session_id, "imported": True, "messages": len(given.messages)}


def _session(db: Db, operator_id: str, session_id: str, given: ForeignSession) -> SessionRow:
    asked = next((said.content for said in given.messages if said.role == "operator"), "")
    return SessionRow(
        id=session_id,
        project_id="",
        created_by=operator_id,
        working_directory="",
        dsl_hash="",
        state=(State.IDLE if given.ended_ms is None else State.ENDED).value,
        created_at=given.started_ms,
        updated_at=now_ms(),
        ended_at=given.ended_ms,
        end_reason=given.end_reason,
        title=_title(db, operator_id, given.title),
        title_source=given.title_source,
        source=(given.source or given.origin)[:SOURCE_CHARS],
        parent_session_id=_parent_id(db, operator_id, given),
        archived=given.archived,
        pinned=given.pinned,
        preview=" ".join(asked.split())[:PREVIEW_CHARS],
        last_active=max([given.started_ms, *(said.at_ms for said in given.messages)]),
        message_seq=len(given.messages),
        message_count=len(given.messages),
        tool_call_count=sum(len(said.tool_calls) for said in given.messages),
        api_calls=given.api_calls,
        estimated_cost_usd=given.usage.estimated_cost_usd,
        actual_cost_usd=given.usage.actual_cost_usd,
        cost_status=given.usage.cost_status,
        cost_source=given.usage.cost_source,
        cache_id=session_id,
        **given.usage.tokens(),
    )


def _parent_id(db: Db, operator_id: str, given: ForeignSession) -> str | None:
    """The parent's id, if it is here: importers hand out parents before their children."""
    if given.parent is None:
        return None
    parent = given.parent
    found = sessions.find(
        db, _session_id(given.origin, operator_id, parent.native_id, parent.started_ms)
    )
    return None if found is None else found.id


def _title(db: Db, operator_id: str, title: str | None) -> str | None:
    words = " ".join((title or "").split())[: titles.TITLE_CHARS_MAX]
    if not words or titles.holder(db, operator_id, words) is None:
        return words or None
    return titles.next_title(db, operator_id, words)


def _write_messages(db: Db, session: SessionRow, given: ForeignSession) -> None:
    rows = [
        _message(session, given.origin, position, said)
        for position, said in enumerate(given.messages, start=1)
    ]
    for start in range(0, len(rows), INSERT_ROWS):
        db.connection().execute(insert(_messages), rows[start : start + INSERT_ROWS])
    for cause in ("rollback", "compaction"):
        ids = [
            row["id"]
            for row, said in zip(rows, given.messages, strict=True)
            if said.superseded_by == cause
        ]
        if ids:
            cause_id = ulid_of(given.origin, cause, session.id, session.created_at)
            supersessions.supersede(db, session.id, ids, cause, cause_id)


def _message(
    session: SessionRow, origin: str, position: int, said: ForeignMessage
) -> dict[str, Any]:
    row = Message(
        id=ulid_of(origin, "message", f"{session.id}:{said.native_id}", said.at_ms),
        session_id=session.id,
        seq=position,
        role=said.role,
        content=said.content,
        created_at=said.at_ms,
        meta={**said.meta, "origin": origin},
        tool_call_id=said.tool_call_id,
        tool_name=said.tool_name,
        tool_calls=list(said.tool_calls) or None,
        model=said.model,
        tokens=said.tokens,
    )
    return row.model_dump(exclude={"number"})


def _calls(session: SessionRow, given: ForeignSession) -> list[Call]:
    """A row for each model, or one that stands for all, so that usage by model is true."""

    def call_id(native_id: str) -> str:
        return ulid_of(given.origin, "call", native_id, session.created_at)

    if not given.usage_by_model:
        return [_call(session, given.usage, call_id(session.id))]
    return [
        _call(session, share, call_id(f"{session.id}:{number}"))
        for number, share in enumerate(given.usage_by_model)
    ]


def _call(session: SessionRow, used: ForeignUsage, call_id: str) -> Call:
    # A zero is written where nothing was billed.
    actual = used.actual_cost_usd or None
    return Call(
        id=call_id,
        session_id=session.id,
        type="imported",
        status="done",
        model=used.model,
        provider=used.provider or None,
        cost_usd=used.estimated_cost_usd if actual is None else actual,
        cost_status=used.cost_status if actual is None else "actual",
        cost_source=used.cost_source,
        created_at=session.created_at,
        completed_at=session.last_active,
        **used.tokens(),
    )


def _without_nul(value: Any) -> Any:
    """Postgres stores no NUL, in no text."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        clean = {one.name: _without_nul(getattr(value, one.name)) for one in fields(value)}
        return replace(value, **clean)
    return [_without_nul(item) for item in value] if isinstance(value, list | tuple) else value
