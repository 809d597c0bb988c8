"""Imports a Hermes `state.db`: sessions with lineage, titles, usage, messages and tool calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from ulid import ULID

from domain.clock import now_ms
from domain.errors import ValidationFailed
from domain.events import SessionCreated, SessionImported
from domain.lifecycle import State
from storage import aliases, events, farewells, sessions, titles
from storage.engine import Db
from storage.hermes_file import HermesFile, open_copy
from storage.home_projects import IMPORTED, home_project
from storage.opening import OpenStore
from storage.rows import insert_once, table
from storage.tables import Call, Message, SessionRow

ROLES = {"user": "operator", "assistant": "primary", "tool": "tool", "system": "system"}
ORIGIN = "hermes"
PREVIEW_CHARS = 63
MESSAGES_MAX = 200_000
INSERT_ROWS = 200
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
        for row in file.sessions():
            said = list(_limited(file, row["id"]))
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
    session_id = ulid_of("session", f"{operator_id}:{row['id']}", started)
    if sessions.find(db, session_id) is not None:
        return None
    project = home_project(db, store.home, operator_id, IMPORTED, ORIGIN)
    session = _session(db, operator_id, session_id, row, said)
    session.project_id, session.working_directory = project.id, project.path
    session.dsl_hash = project.dsl_hash
    farewells.drop(db, session_id)
    insert_once(db, SessionRow, session.model_dump())
    rows = [
        _message(session, position, message, row) for position, message in enumerate(said, start=1)
    ]
    for start in range(0, len(rows), INSERT_ROWS):
        db.connection().execute(insert(_messages), rows[start : start + INSERT_ROWS])
    insert_once(db, Call, _call(session, row).model_dump())
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
        title_source="user" if row.get("title") else None,
        source=str(row.get("source") or ORIGIN)[:64],
        parent_session_id=_parent(db, operator_id, row.get("parent_session_id")),
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


def _parent(db: Db, operator_id: str, parent_id: str | None) -> str | None:
    """A parent was started, and so imported, before its children."""
    return None if parent_id is None else aliases.find(db, operator_id, str(parent_id))


def _message(
    session: SessionRow, position: int, message: dict[str, Any], row: dict[str, Any]
) -> dict[str, Any]:
    at = _ms(message.get("timestamp"))
    role = ROLES.get(str(message.get("role")), "system")
    kept = {key: message[key] for key in ("finish_reason", "reasoning") if message.get(key)}
    if position == 1 and row.get("system_prompt"):
        kept["system_prompt"] = row["system_prompt"]
    entry = Message(
        id=ulid_of("message", f"{session.id}:{message['id']}", at),
        session_id=session.id,
        seq=position,
        role=role,
        content=str(message.get("content") or "").replace("\x00", ""),
        created_at=at,
        meta={**kept, "origin": ORIGIN},
        tool_call_id=message.get("tool_call_id"),
        tool_name=message.get("tool_name"),
        tool_calls=message["tool_calls"] or None,
        model=row.get("model") if role == "primary" else None,
        tokens=_number(message.get("token_count")),
    )
    return entry.model_dump(exclude={"number"})


def _call(session: SessionRow, row: dict[str, Any]) -> Call:
    """One row that stands for all calls of the session, so that usage by model is true."""
    return Call(
        id=ulid_of("call", session.id, session.created_at),
        session_id=session.id,
        type="imported",
        status="done",
        model=row.get("model"),
        provider=row.get("billing_provider"),
        cost_usd=row.get("actual_cost_usd") or row.get("estimated_cost_usd"),
        cost_status=row.get("cost_status"),
        cost_source=row.get("cost_source"),
        created_at=session.created_at,
        completed_at=session.last_active,
        **_tokens(row),
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
