"""A backend of somebody's own for the sessions of chats: the five methods of the protocol."""

from __future__ import annotations

from dataclasses import replace

from holdfast.storage.chats.chat_session import ChatSession

BACKEND = "tests.support.notebook_store:NotebookStore.of"


class NotebookStore:
    """Keeps sessions outside of the API's managers, as a server would, and counts its calls."""

    notebooks: dict[str, NotebookStore] = {}  # noqa: RUF012 - outlives the API of a test

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], ChatSession] = {}
        self.calls: list[str] = []

    @classmethod
    def of(cls, operator_id: str) -> NotebookStore:
        """The notebook of the operator, the same after a restart of the API."""
        return cls.notebooks.setdefault(operator_id, cls())

    async def setup(self) -> None:
        """Note it."""
        self.calls.append("setup")

    async def teardown(self) -> None:
        """Note it."""
        self.calls.append("teardown")

    async def save(self, session: ChatSession) -> None:
        """Write a copy down."""
        self.calls.append("save")
        self.sessions[session.key] = replace(session)

    async def load(self, user_id: str, chat_id: str) -> ChatSession | None:
        """A copy of the active session, or None."""
        self.calls.append("load")
        found = self.sessions.get((user_id, chat_id))
        return None if found is None else replace(found)

    async def delete(self, user_id: str, chat_id: str) -> None:
        """Strike it out."""
        self.calls.append("delete")
        self.sessions.pop((user_id, chat_id), None)
