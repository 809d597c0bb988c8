"""Chat sessions in the database, SQLite or Postgres: they survive a restart, deletes are soft."""

from __future__ import annotations

from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.storage.chats import rows
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage
from holdfast.storage.chats.session_store import MemorySessionStore, SessionStore
from holdfast.storage.database.engine import Store

BACKENDS = ("memory", "database")


class DatabaseSessionStore:
    """The chats of one operator and connector, with their log (T-012 to T-017)."""

    def __init__(self, store: Store, operator_id: str, connector: str = rows.CONNECTOR) -> None:
        self._store = store
        self._operator_id = operator_id
        self._connector = connector

    async def setup(self) -> None:
        """Nothing to do: the tables are made when the store is opened."""

    async def teardown(self) -> None:
        """Nothing to do: whoever opened the store closes it."""

    async def save(self, session: ChatSession) -> None:
        """Store the session in the place of the one before."""
        await self._store.awrite(
            lambda db: rows.save(db, self._operator_id, self._connector, session)
        )

    async def load(self, user_id: str, chat_id: str) -> ChatSession | None:
        """The active session, or None."""
        chat = await self._store.aread(
            lambda db: rows.load(db, self._operator_id, self._connector, user_id, chat_id)
        )
        return None if chat is None else rows.as_session(chat)

    async def delete(self, user_id: str, chat_id: str) -> None:
        """The session is no longer active; its row and its log stay."""
        await self._store.awrite(
            lambda db: rows.deactivate(db, self._operator_id, self._connector, user_id, chat_id)
        )

    async def save_message(
        self,
        user_id: str,
        chat_id: str,
        role: str,
        content: str,
        cost: float | None = None,
        duration_ms: int | None = None,
        session_id: str | None = None,
    ) -> str:
        """Append one line to the log; its id."""
        line = LoggedMessage(
            new_id(), user_id, chat_id, role, content, cost, duration_ms, session_id, now_ms()
        )
        await self._store.awrite(lambda db: rows.log(db, self._operator_id, self._connector, line))
        return line.id

    async def get_messages(
        self, user_id: str, chat_id: str, limit: int = 50, offset: int = 0
    ) -> list[LoggedMessage]:
        """Lines by time, then id."""
        return await self._store.aread(
            lambda db: rows.messages(
                db,
                self._operator_id,
                self._connector,
                user_id,
                chat_id,
                limit=limit,
                offset=offset,
            )
        )


def build_store(backend: str, store: Store | None, operator_id: str) -> SessionStore:
    """The backend by its name (T-018); one of your own needs only the protocol."""
    if backend == "memory":
        return MemorySessionStore()
    if backend == "database" and store is not None:
        return DatabaseSessionStore(store, operator_id)
    raise ValueError(f"no such backend for chats: {backend}; there are {', '.join(BACKENDS)}")
