"""Events of a session that somebody supervises: what it needs, its provider, words that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.domain.events import Event


@dataclass(frozen=True, kw_only=True)
class AttentionRequired(Event):
    kind = "attention.required"
    session_id: str
    attention_kind: str
    summary: str
    run_id: str | None = None
    attention: dict[str, Any] | None = None  # as the session shows it


@dataclass(frozen=True, kw_only=True)
class AttentionCleared(Event):
    kind = "attention.cleared"
    session_id: str
    attention_kind: str


@dataclass(frozen=True, kw_only=True)
class ModelRetrying(Event):
    kind = "model.retrying"
    run_id: str
    attempt: int
    next_in_ms: int
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ModelRecovered(Event):
    kind = "model.recovered"
    run_id: str


@dataclass(frozen=True, kw_only=True)
class MessageWaiting(Event):
    kind = "message.waiting"
    session_id: str
    message_id: str
    when_busy: str
    waiting: int


@dataclass(frozen=True, kw_only=True)
class MessageEdited(Event):
    kind = "message.edited"
    session_id: str
    message_id: str


@dataclass(frozen=True, kw_only=True)
class MessageWithdrawn(Event):
    kind = "message.withdrawn"
    session_id: str
    message_id: str
    waiting: int


@dataclass(frozen=True, kw_only=True)
class MessageSteered(Event):
    kind = "message.steered"
    session_id: str
    message_id: str
    run_id: str
