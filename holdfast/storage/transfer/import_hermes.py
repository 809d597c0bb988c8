"""Imports a Hermes `state.db`: sessions with lineage, titles, usage, messages and tool calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from ulid import ULID

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.events import SessionCreated, SessionImported
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import Call, Message, SessionRow
from holdfast.storage.log import events
from holdfast.storage.projects.home_projects import IMPORTED, home_project
from holdfast.storage.sessions import aliases, purged_workflows, sessions, supersessions, titles
from holdfast.storage.transfer.hermes_file import HermesFile, open_copy

ROLES = {"user": "operator", "assistant": "primary", "tool": "tool", "system": "system"}
ORIGIN = "hermes"
PREVIEW_CHARS = 63
MESSAGES_MAX = 200_000
INSERT_ROWS = 200
# What has no column of ours stays with the message, and with the first what is the session's.
_KEPT_OF_MESSAGES = (
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
_KEPT_OF_SESSIONS = (
    "system_prompt",
    "user_id",
    "model_config",
    "billing_base_url",
    "billing_mode",
    "pricing_version",
)
_messages = table(Message)
Told = Callable[[int, str], None]


def import_hermes(
    store: OpenStore, operator_id: str, path: Path, *, told: Told | None = None
) -> dict[str, Any]:
    """Bring in every session that is not here yet; a second import of the same file adds nothing.

    Ids are made from Hermes' own, whose old spelling stays as an alias (H-043).
    """
    imported: list[str] = []
    skipped = messages = 0
    with open_copy(path) as file:
        for given in file.sessions():
            row, said = _without_nul(given), _without_nul(list(_limited(file, given["id"])))
            row["usage"] = file.usage(row["id"])
            row["parent"] = _parent(file, operator_id, row.get("parent_session_id"))
            session_id = store.write(
                lambda db, row=row, said=said: _import(db, store, operator_id, row, said)  # type: ignore[misc]
            )
            if session_id is None:
                skipped += 1
                continue
            imported.append(session_id)
            messages += len(said)
            if told is not None:
                told(len(imported) + skipped, session_id)
    return {
        "origin": ORIGIN,
        "imported": len(imported),
        "skipped": skipped,
        "messages": messages,
        "session_ids": imported[:500],
    }


def ulid_of(kind: str, origin_id: str, at_ms: int) -> str:
    """The same id for the same thing, whenever it is imported."""
    digest = hashlib.sha256(f"{ORIGIN}:{kind}:{origin_id}".encode()).digest()
    return str(ULID.from_int((max(at_ms, 0) << 80) | int.from_bytes(digest[:10], "big")))


def _limited(file: HermesFile, session_id: str) -> Iterator[dict[str, Any]]:
    for count, message in enumerate(file.messages(session_id)):
        if count >= MESSAGES_MAX:
            return
        yield message


def _import(
    db: Db, store: OpenStore, operator_id: str, row: dict[str, Any], said: list[dict[str, Any]]
) -> str | None:
    started = _ms(row.get("started_at"))
    session_id = _session_id(operator_id, row["id"], started)
    if sessions.find(db, session_id) is not None:
        return None
    project = home_project(db, store.home, operator_id, IMPORTED, ORIGIN)
    session = _session(db, operator_id, session_id, row, said)
    session.project_id, session.working_directory = project.id, project.path
    session.dsl_hash = project.dsl_hash
    purged_workflows.drop(db, session_id)
    insert_once(db, SessionRow, session.model_dump())
    rows = [
        _message(session, position, message, row) for position, message in enumerate(said, start=1)
    ]
    for start in range(0, len(rows), INSERT_ROWS):
        db.connection().execute(insert(_messages), rows[start : start + INSERT_ROWS])
    _supersede(db, session, rows, said)
    for call in _calls(session, row):
        insert_once(db, Call, call.model_dump())
    with suppress(ValidationFailed):
        aliases.put(db, operator_id, str(row["id"]), session_id)
    created = SessionCreated(
        session_id=session_id, project_id=project.id, user_id=operator_id, forked_from=None
    )
    brought = SessionImported(
        session_id=session_id, origin=ORIGIN, origin_id=str(row["id"]), messages=len(rows)
    )
    events.append(db, session_id, created, brought, row=("session", session_id))
    return session_id


def _session(
    db: Db, operator_id: str, session_id: str, row: dict[str, Any], said: list[dict[str, Any]]
) -> SessionRow:
    started, ended = _ms(row.get("started_at")), row.get("ended_at")
    asked = next((item for item in said if item.get("role") == "user"), {})
    last = max((_ms(item.get("timestamp")) for item in said), default=started)
    return SessionRow(
        id=session_id,
        project_id="",
        created_by=operator_id,
        working_directory="",
        dsl_hash="",
        state=(State.IDLE if ended is None else State.ENDED).value,
        created_at=started,
        updated_at=now_ms(),
        ended_at=None if ended is None else _ms(ended),
        end_reason=row.get("end_reason"),
        title=_title(db, operator_id, row.get("title")),
        title_source=_title_source(row),
        source=str(row.get("source") or ORIGIN)[:64],
        parent_session_id=row["parent"],
        archived=bool(row.get("archived")),
        pinned=bool(row.get("pinned")),
        preview=" ".join(str(asked.get("content") or "").split())[:PREVIEW_CHARS],
        last_active=max(last, started),
        message_seq=len(said),
        message_count=len(said),
        tool_call_count=sum(len(item["tool_calls"]) for item in said),
        api_calls=_number(row.get("api_call_count")),
        estimated_cost_usd=row.get("estimated_cost_usd"),
        actual_cost_usd=row.get("actual_cost_usd"),
        cost_status=row.get("cost_status"),
        cost_source=row.get("cost_source"),
        **_tokens(row),
    )


def _title(db: Db, operator_id: str, title: str | None) -> str | None:
    words = " ".join((title or "").split())[: titles.TITLE_CHARS_MAX]
    if not words or titles.holder(db, operator_id, words) is None:
        return words or None
    return titles.next_title(db, operator_id, words)


def _title_source(row: dict[str, Any]) -> str | None:
    """Later schemas say who gave the title: the user, or Hermes by itself."""
    if not row.get("title"):
        return None
    return "user" if row.get("title_source") in (None, "user") else "auto"


def _parent(file: HermesFile, operator_id: str, parent_id: str | None) -> str | None:
    """The parent's id here, whether it is imported yet or not; clocks may have gone backwards."""
    started = None if parent_id is None else file.started_at(parent_id)
    return None if started is None else _session_id(operator_id, parent_id, _ms(started))


def _session_id(operator_id: str, origin_id: Any, started: int) -> str:
    return ulid_of("session", f"{operator_id}:{origin_id}", started)


def _supersede(
    db: Db, session: SessionRow, rows: list[dict[str, Any]], said: list[dict[str, Any]]
) -> None:
    """Later schemas keep what was rewound or compacted and flag it."""
    for cause, is_compacted in (("rollback", False), ("compaction", True)):
        ids = [
            kept["id"]
            for kept, given in zip(rows, said, strict=True)
            if given.get("active") == 0 and bool(given.get("compacted")) is is_compacted
        ]
        if ids:
            cause_id = ulid_of(cause, session.id, session.created_at)
            supersessions.supersede(db, session.id, ids, cause, cause_id)


def _message(
    session: SessionRow, position: int, message: dict[str, Any], row: dict[str, Any]
) -> dict[str, Any]:
    at = _ms(message.get("timestamp"))
    role = ROLES.get(str(message.get("role")), "system")
    kept = {key: message[key] for key in _KEPT_OF_MESSAGES if message.get(key)}
    if position == 1:
        kept |= {key: row[key] for key in _KEPT_OF_SESSIONS if row.get(key)}
    entry = Message(
        id=ulid_of("message", f"{session.id}:{message['id']}", at),
        session_id=session.id,
        seq=position,
        role=role,
        content=message["content"],
        created_at=at,
        meta={**kept, "origin": ORIGIN},
        tool_call_id=message.get("tool_call_id"),
        tool_name=message.get("tool_name"),
        tool_calls=message["tool_calls"] or None,
        model=row.get("model") if role == "primary" else None,
        tokens=_number(message.get("token_count")),
    )
    return entry.model_dump(exclude={"number"})


def _calls(session: SessionRow, row: dict[str, Any]) -> list[Call]:
    """A row for each model, or one that stands for all, so that usage by model is true."""
    shares = row["usage"]
    if not shares:
        return [_call(session, row, ulid_of("call", session.id, session.created_at))]
    return [
        _call(session, share, ulid_of("call", f"{session.id}:{number}", session.created_at))
        for number, share in enumerate(shares)
    ]


def _call(session: SessionRow, used: dict[str, Any], call_id: str) -> Call:
    # Shares have 0 where nothing was billed, sessions have nothing there.
    actual = used.get("actual_cost_usd") or None
    return Call(
        id=call_id,
        session_id=session.id,
        type="imported",
        status="done",
        model=used.get("model"),
        provider=used.get("billing_provider") or None,
        cost_usd=used.get("estimated_cost_usd") if actual is None else actual,
        cost_status=used.get("cost_status") if actual is None else "actual",
        cost_source=used.get("cost_source"),
        created_at=session.created_at,
        completed_at=session.last_active,
        **_tokens(used),
    )


def _tokens(row: dict[str, Any]) -> dict[str, Any]:
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    return {f"{name}_tokens": _number(row.get(f"{name}_tokens")) for name in names}


def _ms(seconds: Any) -> int:
    """Hermes counts seconds with a fraction (H-009)."""
    try:
        return max(0, int(float(seconds or 0) * 1000))
    except (TypeError, ValueError, OverflowError):
        return 0


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _without_nul(value: Any) -> Any:
    """Postgres stores no NUL, in no text."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return [_without_nul(item) for item in value] if isinstance(value, list) else value
