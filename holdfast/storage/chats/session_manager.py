"""The sessions of an operator's chats: a cache in front of a store, and a new one last (T-002).

Sessions are used in a transaction, with `read` or `change`. Where the store is the database, the
transaction reads the row again, since another process may have changed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.chats.chat_session import ChatSession, now
from holdfast.storage.chats.database_store import DatabaseSessionStore
from holdfast.storage.chats.session_store import ListingStore, SessionStore, latest
from holdfast.storage.database.engine import Db, Store

T = TypeVar("T")
# What is done in a transaction; it may change the session, and may run again on a fresh copy.
Work = Callable[[Db, ChatSession], T]
CACHED_MAX = 10_000
TRIES = 5


class ChatEnded(Exception):
    """There is no active session for this user and chat any more."""


def _nothing(_db: Db, _session: ChatSession) -> None:
    return


class SessionManager:
    """Finds or makes the session of a user in a chat."""

    def __init__(
        self, store: SessionStore, database: Store, *, max_age_hours: float = 24.0
    ) -> None:
        self.store = store
        self.max_age_hours = max_age_hours
        self._database = database
        # Set where sessions lie in the database: then they are part of its transactions.
        self._table = store if isinstance(store, DatabaseSessionStore) else None
        self._cache: dict[tuple[str, str], ChatSession] = {}
        # Two first messages must not begin two sessions. Other stores than the database need it
        # for every change, from loading to saving.
        self._alone = asyncio.Lock()

    async def get_or_create(
        self, user_id: str, chat_id: str, working_directory: str, begin: Work[None] = _nothing
    ) -> ChatSession:
        """From memory, else from the store, else new (T-003); `begin` is stored with a new one."""
        found = await self.find(user_id, chat_id)
        if found is None:
            async with self._alone:
                found = await self.find(user_id, chat_id)
                if found is None:
                    made = ChatSession(new_id(), user_id, chat_id, working_directory)
                    found = await self._create(made, begin)
        return found

    def get(self, user_id: str, chat_id: str) -> ChatSession | None:
        """From memory only, and only while it has not expired (T-005, T-008)."""
        found = self._cache.get((user_id, chat_id))
        return None if found is None or _is_older(found, self.max_age_hours) else found

    async def find(self, user_id: str, chat_id: str) -> ChatSession | None:
        """From memory, else from the store."""
        found = self.get(user_id, chat_id)
        if found is None:
            found = await self.store.load(user_id, chat_id)
            if found is not None:
                self._keep(found)
        return found

    @property
    def cached(self) -> int:
        """How many sessions are in memory."""
        return len(self._cache)

    async def active(self, *, limit: int) -> list[ChatSession]:
        """Active sessions, the one used last first; those in memory if the store cannot list."""
        if isinstance(self.store, ListingStore):
            return await self.store.active(limit=limit)
        return latest(self._cache.values(), limit=limit)

    async def open(
        self,
        user_id: str,
        chat_id: str,
        working_directory: str,
        begin: Work[None],
        use: Callable[[ChatSession], Awaitable[T]],
    ) -> T:
        """Get or create the session and `use` it; one that another process ended is made anew."""
        for _ in range(TRIES):
            session = await self.get_or_create(user_id, chat_id, working_directory, begin)
            try:
                return await use(session)
            except ChatEnded:
                continue
        raise Conflict("the chat was ended again and again meanwhile")

    async def read(self, session: ChatSession, look: Work[T]) -> T:
        """What `look` finds in one read transaction, or ChatEnded."""
        return await self._within(session, look, write=False)

    async def change(self, session: ChatSession, work: Work[T]) -> T:
        """Run `work` in one transaction and store what it changes of the session, or ChatEnded."""
        if self._table is not None:
            return await self._within(session, work, write=True)
        async with self._alone:
            return await self._within(session, work, write=True)

    async def update_from_result(
        self,
        session: ChatSession,
        claude_session_id: str | None,
        cost: float,
        *,
        log: Callable[[Db], bool] = lambda _db: True,
    ) -> bool:
        """One more answer: counts, cost and the session to go on with (T-006).

        `log` is part of the transaction; where it says False the answer was counted before. A
        `/clear` that came meanwhile holds.
        """

        def add(db: Db, chat: ChatSession) -> bool:
            if not log(db):
                return False
            if chat.claude_session_id == session.claude_session_id:
                chat.claude_session_id = claude_session_id
            chat.message_count += 1
            chat.total_cost += cost
            chat.last_used = now()
            return True

        return await self.change(session, add)

    async def deactivate(
        self, user_id: str, chat_id: str, end: Work[None] = _nothing
    ) -> ChatSession | None:
        """End it in memory and in the store (T-007), with `end` in the same transaction."""

        def leave(db: Db, chat: ChatSession) -> ChatSession:
            end(db, chat)
            chat.is_active = False
            return chat

        session = await self.find(user_id, chat_id)
        try:
            return None if session is None else await self.change(session, leave)
        except ChatEnded:
            return None

    def cleanup_expired(self, max_age_hours: float) -> int:
        """Drop from memory what was not used for so long; the store keeps it (T-008)."""
        expired = [key for key, kept in self._cache.items() if _is_older(kept, max_age_hours)]
        for key in expired:
            del self._cache[key]
        return len(expired)

    async def _create(self, made: ChatSession, begin: Work[None]) -> ChatSession:
        def create(db: Db) -> ChatSession:
            # Another process may have been quicker.
            if self._table and (known := self._table.current(db, *made.key, lock=True)):
                return known
            fresh = replace(made)
            begin(db, fresh)
            if self._table:
                self._table.put(db, fresh)
            return fresh

        created = await self._database.awrite(create)
        if not self._table:
            await self.store.save(created)
        self._keep(created)
        return created

    async def _within(self, session: ChatSession, work: Work[T], *, write: bool) -> T:
        loaded = None if self._table else await self.find(*session.key)

        def run(db: Db) -> tuple[ChatSession, ChatSession, T]:
            before = self._table.current(db, *session.key, lock=write) if self._table else loaded
            if before is None:
                raise ChatEnded
            after = replace(before)
            result = work(db, after)
            if self._table and after != before:
                self._table.put(db, after)
            return before, after, result

        transaction = self._database.awrite if write else self._database.aread
        try:
            before, after, result = await transaction(run)
        except ChatEnded:
            self._cache.pop(session.key, None)
            raise
        if not self._table and after != before:
            await (self.store.save(after) if after.is_active else self.store.delete(*after.key))
        if after.is_active:
            self._keep(after)
        else:
            self._cache.pop(after.key, None)
        return result

    def _keep(self, session: ChatSession) -> None:
        if len(self._cache) >= CACHED_MAX:
            oldest = min(self._cache, key=lambda key: self._cache[key].last_used)
            del self._cache[oldest]
        self._cache[session.key] = session


def _is_older(session: ChatSession, max_age_hours: float) -> bool:
    return session.last_used < now() - timedelta(hours=max_age_hours)
