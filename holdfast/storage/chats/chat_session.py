"""A chat's session as connectors know it (T-009)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

Mode = Literal["plan", "auto"]
MODES: tuple[str, ...] = get_args(Mode)


def now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


@dataclass
class ChatSession:
    """One active conversation of a user in a chat."""

    session_id: str
    user_id: str
    chat_id: str
    working_directory: str
    # The conversation that goes on; None begins a fresh one with the next message (T-010).
    claude_session_id: str | None = None
    created_at: datetime = field(default_factory=now)
    last_used: datetime = field(default_factory=now)
    total_cost: float = 0.0
    message_count: int = 0
    mode: str = "plan"
    is_active: bool = True

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
