"""The chats of every operator: a session manager each, and the loop that delivers messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from holdfast.domain.commands import NewMessage
from holdfast.domain.errors import Refusal
from holdfast.settings.config import Chats as ChatSettings
from holdfast.settings.environment import SettingsError
from holdfast.storage.chats import chat_log, delivery
from holdfast.storage.chats.backends import backend
from holdfast.storage.chats.chat_session import ChatSession, Place, to_ms
from holdfast.storage.chats.conversations import Wanted, answering
from holdfast.storage.chats.session_manager import ChatEnded, SessionManager, Work
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_library import ChatMessage
from holdfast.temporal.sessions import SessionCommands

T = TypeVar("T")
log = logging.getLogger("holdfast.api")
ANY = Wanted()
LINES_MAX = 100
BUSY_PAUSE_S, IDLE_PAUSE_S, TROUBLE_PAUSE_S = 0.3, 1.0, 5.0
# Sent, but taken by nobody: the sender died in between.
LOST_AFTER_MS = 30_000


class OpenChat:
    """One chat, found or made with its session whenever it is used."""

    def __init__(self, manager: SessionManager, home: Path, place: Place, wanted: Wanted) -> None:
        self._manager = manager
        self._home = home
        self._place = place
        self._wanted = wanted

    async def read(self, look: Work[T]) -> T:
        """What `look` finds in one read transaction."""
        return await self._open(lambda session: self._manager.read(session, look))

    async def change(self, work: Work[T]) -> T:
        """Run `work` in one transaction and store what it changes of the chat's session."""
        return await self._open(lambda session: self._manager.change(session, work))

    async def _open(self, use: Callable[[ChatSession], Awaitable[T]]) -> T:
        def begin(db: Db, session: ChatSession) -> None:
            answering(db, self._home, self._place, session, self._wanted)

        folder = self._wanted.working_directory or ""
        return await self._manager.open(
            self._place.user_id, self._place.chat_id, folder, begin, use
        )


class Chats:
    """What this process knows of chats; every message is in the database, so it may be killed."""

    def __init__(self, store: OpenStore, settings: ChatSettings) -> None:
        try:
            self._backend = backend(settings.backend)
        except ValueError as error:
            raise SettingsError(f"config.toml: chats.backend: {error}") from error
        self.store = store
        self._cache_hours = settings.cache_hours
        self._managers: dict[str, SessionManager] = {}
        self._opening = asyncio.Lock()
        self._delivery: asyncio.Task[None] | None = None

    @property
    def cached(self) -> int:
        """How many sessions are in memory."""
        return sum(manager.cached for manager in self._managers.values())

    async def of(self, operator_id: str) -> SessionManager:
        """The manager of the operator's chats."""
        async with self._opening:
            if operator_id not in self._managers:
                sessions = self._backend(self.store, operator_id)
                await sessions.setup()
                self._managers[operator_id] = SessionManager(
                    sessions, self.store, max_age_hours=self._cache_hours
                )
            return self._managers[operator_id]

    async def at(self, place: Place, wanted: Wanted = ANY) -> OpenChat:
        """The chat at this place; one that is not there yet is made as `wanted`."""
        return OpenChat(await self.of(place.operator_id), self.store.home, place, wanted)

    def start(self, commands: SessionCommands) -> None:
        """Deliver messages that wait, until `stop`."""
        self._delivery = asyncio.create_task(self._deliver_forever(commands))

    async def stop(self) -> None:
        """Stop delivering and let go of the stores."""
        if self._delivery is not None:
            self._delivery.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._delivery
        for manager in self._managers.values():
            await manager.store.teardown()

    async def deliver(self, commands: SessionCommands) -> bool:
        """One round: log what was answered, send what may be sent; False if there was nothing."""
        if not await self.store.aread(chat_log.is_open):
            return False
        answered = await self.store.aread(lambda db: chat_log.to_settle(db, limit=LINES_MAX))
        await _all(self._settle(line) for line in answered)
        waiting = await self.store.aread(lambda db: chat_log.to_send(db, limit=LINES_MAX))
        await _all(self._send(commands, line) for line in waiting)
        return True

    async def _deliver_forever(self, commands: SessionCommands) -> None:
        while True:
            try:
                pause = BUSY_PAUSE_S if await self.deliver(commands) else IDLE_PAUSE_S
            except Exception as error:  # noqa: BLE001 - the next round finds what this one left
                log.warning("chats: a round failed: %s", str(error)[:500])
                pause = TROUBLE_PAUSE_S
            for manager in self._managers.values():
                manager.cleanup_expired(self._cache_hours)
            await asyncio.sleep(pause)

    async def _settle(self, line: ChatMessage) -> None:
        run = await self.store.aread(lambda db: delivery.finished_run(db, line))
        if run is None:
            await self.store.awrite(
                lambda db: delivery.requeue_lost(db, line, lost_after_ms=LOST_AFTER_MS)
            )
            return

        def log_answer(db: Db) -> bool:
            return delivery.log_answer(db, line, run)

        manager = await self.of(line.operator_id)
        chat = await manager.find(line.user_id, line.chat_id)
        if chat is not None and to_ms(chat.created_at) <= line.created_at:
            with contextlib.suppress(ChatEnded):
                # Not the session that answered: it may have been cleared before it did.
                await manager.update_from_result(
                    chat, chat.claude_session_id, run.cost_usd or 0.0, log=log_answer
                )
                return
        await self.store.awrite(log_answer)

    async def _send(self, commands: SessionCommands, line: ChatMessage) -> None:
        if await self.store.aread(lambda db: delivery.needs_another(db, line)):
            await self._redirect(line)
        session = await self.store.awrite(lambda db: delivery.claim(db, line.id))
        if session is None:
            return
        command = NewMessage(command_id=line.id, user_id=line.operator_id, message_id=line.id)
        try:
            await commands.send(session, "message", command)
        except Refusal as refusal:
            log.info("chats: message %s was not taken: %s", line.id, refusal.message[:200])
            if refusal.status < 500:
                # Somebody else was quicker: it waits for the next turn.
                await self.store.awrite(lambda db: delivery.take_back(db, line.id, state="queued"))
            # Otherwise nobody knows whether it arrived; the same id is taken only once.

    async def _redirect(self, line: ChatMessage) -> None:
        """The session that the line waits for is over: the one that answers now takes it."""
        chat = await self.at(delivery.place_of(line))
        await chat.change(lambda db, session: delivery.redirect(db, self.store.home, session, line))


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """Each at once: a session that does not answer, or a defect, must not hold up the others."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, Exception):
            log.warning("chats: a message was left for the next round: %s", str(result)[:500])
