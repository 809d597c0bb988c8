"""Chat sessions in the database, SQLite or Postgres: they survive a restart, deletes are soft."""

from __future__ import annotations

from holdfast.storage.chats import rows
from holdfast.storage.chats.chat_session import ChatSession, Place
from holdfast.storage.database.engine import Db, Store


class DatabaseSessionStore:
    """The chats of one operator (T-012, T-013).

    `current` and `put` work within a transaction of the caller, so that a session and what is
    said in it are stored together, and a change by another process is seen.
    """

    def __init__(self, store: Store, operator_id: str) -> None:
        self._store = store
        self._operator_id = operator_id

    async def setup(self) -> None:
        """Nothing to do: the tables are made when the store is opened."""

    async def teardown(self) -> None:
        """Nothing to do: whoever opened the store closes it."""

    async def save(self, session: ChatSession) -> None:
        """Store the session in the place of the one before."""
        await self._store.awrite(lambda db: self.put(db, session))

    async def load(self, user_id: str, chat_id: str) -> ChatSession | None:
        """The active session, or None."""
        return await self._store.aread(lambda db: rows.load(db, self._place(user_id, chat_id)))

    async def delete(self, user_id: str, chat_id: str) -> None:
        """The session is no longer active; its row stays."""
        await self._store.awrite(lambda db: rows.deactivate(db, self._place(user_id, chat_id)))

    async def active(self, *, limit: int) -> list[ChatSession]:
        """Active sessions, the one used last first."""
        return await self._store.aread(
            lambda db: rows.of_operator(db, self._operator_id, limit=limit)
        )

    def current(self, db: Db, user_id: str, chat_id: str, *, lock: bool) -> ChatSession | None:
        """The active session; with `lock` nobody else changes it until the transaction ends."""
        place = self._place(user_id, chat_id)
        if lock:
            rows.lock(db, place)
        return rows.load(db, place)

    def put(self, db: Db, session: ChatSession) -> None:
        """Store the session in the place of the one before."""
        rows.save(db, self._place(*session.key), session)

    def _place(self, user_id: str, chat_id: str) -> Place:
        return Place(self._operator_id, user_id, chat_id)
