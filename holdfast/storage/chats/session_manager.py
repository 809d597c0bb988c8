"""The facade over a session store: a cache in front, and the three-tier lookup (T-002, T-003)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.domain.errors import ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.chats.chat_session import MODES, ChatSession, now
from holdfast.storage.chats.session_store import SessionStore

CACHED_MAX = 10_000


class SessionManager:
    """Finds or makes the session of a user in a chat."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._cache: dict[tuple[str, str], ChatSession] = {}
        # Two first messages at once must not begin two sessions.
        self._making = asyncio.Lock()

    async def get_or_create(
        self, user_id: str, chat_id: str, working_directory: str
    ) -> ChatSession:
        """From memory, else from the store, else new: stored at once, then cached."""
        async with self._making:
            cached = self._cache.get((user_id, chat_id))
            if cached is not None:
                return cached
            session = await self.store.load(user_id, chat_id)
            if session is None:
                session = ChatSession(new_id(), user_id, chat_id, working_directory)
                await self.store.save(session)
            self._keep(session)
            return session

    def get(self, user_id: str, chat_id: str) -> ChatSession | None:
        """From memory only (T-005)."""
        return self._cache.get((user_id, chat_id))

    async def update_from_result(
        self, session: ChatSession, claude_session_id: str | None, cost: float
    ) -> None:
        """One more exchange: counts, cost and the conversation to go on with (T-006)."""
        session.claude_session_id = claude_session_id
        session.message_count += 1
        session.total_cost += cost
        session.last_used = now()
        await self.store.save(session)

    async def set_mode(self, session: ChatSession, mode: str) -> None:
        """Change the mode, so that it is still set after a restart."""
        if mode not in MODES:
            raise ValidationFailed(f"mode is one of {', '.join(MODES)}")
        session.mode = mode
        await self.store.save(session)

    async def clear(self, session: ChatSession) -> None:
        """Begin a fresh conversation with the next message (T-010)."""
        session.claude_session_id = None
        await self.store.save(session)

    async def deactivate(self, user_id: str, chat_id: str) -> None:
        """End it in memory and in the store (T-007)."""
        session = self._cache.pop((user_id, chat_id), None)
        if session is not None:
            session.is_active = False
        await self.store.delete(user_id, chat_id)

    def cleanup_expired(self, max_age_hours: float) -> int:
        """Drop from memory what was not used for so long; the store keeps it (T-008)."""
        oldest = now() - timedelta(hours=max_age_hours)
        expired = [key for key, session in self._cache.items() if session.last_used < oldest]
        for key in expired:
            del self._cache[key]
        return len(expired)

    def _keep(self, session: ChatSession) -> None:
        if len(self._cache) >= CACHED_MAX:
            oldest = min(self._cache, key=lambda key: self._cache[key].last_used)
            del self._cache[oldest]
        self._cache[session.key] = session
