"""Where chat sessions are kept: a protocol that anybody may implement (T-001, T-018)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from holdfast.storage.chats.chat_session import ChatSession


class SessionStore(Protocol):
    """Chat sessions by user and chat; only active ones are ever loaded."""

    async def setup(self) -> None:
        """Get ready."""
        ...

    async def teardown(self) -> None:
        """Let go of what `setup` took."""
        ...

    async def save(self, session: ChatSession) -> None:
        """Store the session, in the place of the one that this user had in this chat."""
        ...

    async def load(self, user_id: str, chat_id: str) -> ChatSession | None:
        """The active session, or None."""
        ...

    async def delete(self, user_id: str, chat_id: str) -> None:
        """The session is no longer active."""
        ...


@runtime_checkable
class ListingStore(Protocol):
    """A store that can also say which sessions it has."""

    async def active(self, *, limit: int) -> list[ChatSession]:
        """Active sessions, the one used last first."""
        ...


class MemorySessionStore:
    """For trials and tests: nothing survives the process, and a deleted session is gone (T-011)."""

    def __init__(self) -> None:
        # A pair, not one joined string: "a:b" in "c" is not "a" in "b:c".
        self._sessions: dict[tuple[str, str], ChatSession] = {}

    async def setup(self) -> None:
        """Nothing to do."""

    async def teardown(self) -> None:
        """Nothing to do."""

    async def save(self, session: ChatSession) -> None:
        """Keep it."""
        self._sessions[session.key] = session

    async def load(self, user_id: str, chat_id: str) -> ChatSession | None:
        """The active session, or None."""
        found = self._sessions.get((user_id, chat_id))
        return found if found is not None and found.is_active else None

    async def delete(self, user_id: str, chat_id: str) -> None:
        """Forget it."""
        self._sessions.pop((user_id, chat_id), None)

    async def active(self, *, limit: int) -> list[ChatSession]:
        """Active sessions, the one used last first."""
        return latest(self._sessions.values(), limit=limit)


def latest(sessions: Iterable[ChatSession], *, limit: int) -> list[ChatSession]:
    """The active ones, the one used last first."""
    active = [session for session in sessions if session.is_active]
    return sorted(active, key=lambda session: session.last_used, reverse=True)[:limit]
