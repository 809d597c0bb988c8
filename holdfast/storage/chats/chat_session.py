"""A chat of a connector: where it takes place, its session, and the lines of its log (T-009)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id

Mode = Literal["plan", "auto"]


def now() -> datetime:
    """Now in UTC, in whole milliseconds as the database stores them."""
    return from_ms(now_ms())


def from_ms(at: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(at / 1000, UTC)


def to_ms(at: datetime) -> int:
    """A time as milliseconds since the epoch."""
    return round(at.timestamp() * 1000)


@dataclass(frozen=True)
class Place:
    """Whose chat it is and where it takes place; never joined into one string."""

    operator_id: str
    user_id: str
    chat_id: str
    connector: str = "api"


@dataclass
class ChatSession:
    """One active conversation of a user in a chat."""

    session_id: str
    user_id: str
    chat_id: str
    working_directory: str
    # The session that answers the next message; None begins a new one (T-010).
    claude_session_id: str | None = None
    created_at: datetime = field(default_factory=now)
    last_used: datetime = field(default_factory=now)
    total_cost: float = 0.0
    message_count: int = 0
    mode: str = "plan"
    is_active: bool = True
    id: str = field(default_factory=new_id)

    @property
    def key(self) -> tuple[str, str]:
        """What it is looked up by."""
        return self.user_id, self.chat_id


@dataclass(frozen=True)
class LoggedMessage:
    """One line of a chat's log (T-014)."""

    id: str
    user_id: str
    chat_id: str
    role: str  # user | assistant
    content: str
    cost: float | None
    duration_ms: int | None
    session_id: str | None
    created_at: int
    state: str = "done"
