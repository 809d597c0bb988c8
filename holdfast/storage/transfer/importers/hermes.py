"""Imports a Hermes `state.db`: sessions with lineage, titles, usage, messages and tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from holdfast.domain.errors import BadRequest
from holdfast.storage.transfer.importers.foreign_session import (
    MESSAGES_MAX,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
    Parent,
)
from holdfast.storage.transfer.importers.hermes_file import HermesFile, is_state_db, open_copy
from holdfast.storage.transfer.importers.importer import Source

# A part of every id that is made from one of Hermes': never to be changed.
ORIGIN = "hermes"
ROLES: dict[str, Literal["operator", "primary", "tool", "system"]] = {
    "user": "operator",
    "assistant": "primary",
    "tool": "tool",
    "system": "system",
}
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


def sniff(source: Source) -> bool:
    """Whether the source is a SQLite file with the tables of Hermes."""
    return isinstance(source.content, Path) and is_state_db(source.content, source.head())


def read(source: Source) -> Iterator[ForeignSession]:
    """Every session, the oldest first, from a private copy of the file.

    Ids are made from Hermes' own, whose old spelling stays as an alias (H-043).
    """
    if not isinstance(source.content, Path):
        raise BadRequest("a state.db of Hermes is read from a file of this machine")
    with open_copy(source.content) as file:
        for row in file.sessions():
            yield _session(file, row)


def _session(file: HermesFile, row: dict[str, Any]) -> ForeignSession:
    ended = row.get("ended_at")
    said = islice(file.messages(row["id"]), MESSAGES_MAX)
    return ForeignSession(
        origin=ORIGIN,
        native_id=str(row["id"]),
        started_ms=_ms(row.get("started_at")),
        messages=[_message(position, one, row) for position, one in enumerate(said, start=1)],
        ended_ms=None if ended is None else _ms(ended),
        end_reason=row.get("end_reason"),
        title=row.get("title"),
        title_source=_title_source(row),
        source=str(row.get("source") or ORIGIN),
        parent=_parent(file, row.get("parent_session_id")),
        archived=bool(row.get("archived")),
        pinned=bool(row.get("pinned")),
        api_calls=_number(row.get("api_call_count")),
        usage=_usage(row),
        usage_by_model=[_usage(share) for share in file.usage(row["id"])],
    )


def _title_source(row: dict[str, Any]) -> Literal["user", "auto"] | None:
    """Later schemas say who gave the title: the user, or Hermes by itself."""
    if not row.get("title"):
        return None
    return "user" if row.get("title_source") in (None, "user") else "auto"


def _parent(file: HermesFile, parent_id: str | None) -> Parent | None:
    """The parent, if the file has it; clocks may have gone backwards since it began."""
    started = None if parent_id is None else file.started_at(parent_id)
    return None if started is None else Parent(str(parent_id), _ms(started))


def _message(position: int, message: dict[str, Any], row: dict[str, Any]) -> ForeignMessage:
    role = ROLES.get(str(message.get("role")), "system")
    kept = {key: message[key] for key in _KEPT_OF_MESSAGES if message.get(key)}
    if position == 1:
        kept |= {key: row[key] for key in _KEPT_OF_SESSIONS if row.get(key)}
    return ForeignMessage(
        native_id=str(message["id"]),
        role=role,
        content=message["content"],
        at_ms=_ms(message.get("timestamp")),
        model=row.get("model") if role == "primary" else None,
        tokens=_number(message.get("token_count")),
        tool_calls=message["tool_calls"],
        tool_call_id=message.get("tool_call_id"),
        tool_name=message.get("tool_name"),
        superseded_by=_superseded_by(message),
        meta=kept,
    )


def _superseded_by(message: dict[str, Any]) -> Literal["rollback", "compaction"] | None:
    """Later schemas keep what was rewound or compacted and flag it."""
    if message.get("active") != 0:
        return None
    return "compaction" if message.get("compacted") else "rollback"


def _usage(row: dict[str, Any]) -> ForeignUsage:
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    tokens = {f"{name}_tokens": _number(row.get(f"{name}_tokens")) for name in names}
    return ForeignUsage(
        model=row.get("model"),
        provider=row.get("billing_provider"),
        estimated_cost_usd=row.get("estimated_cost_usd"),
        actual_cost_usd=row.get("actual_cost_usd"),
        cost_status=row.get("cost_status"),
        cost_source=row.get("cost_source"),
        **tokens,
    )


def _ms(seconds: Any) -> int:
    """Hermes counts seconds with a fraction (H-009)."""
    try:
        return max(0, int(float(seconds or 0) * 1000))
    except (TypeError, ValueError, OverflowError):
        return 0


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
