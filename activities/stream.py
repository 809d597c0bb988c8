"""Deltas on their way into the output channel: the first at once, then a batch every 40 ms."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.domain.errors import Unavailable
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import frames

FLUSH_S = 0.04


class DeltaStream:
    """Collects a model's text and writes it as frames while the model goes on."""

    def __init__(
        self, store: OpenStore, *, session_id: str, run_id: str, message_id: str, agent_path: str
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._about = {"run_id": run_id, "message_id": message_id, "agent_path": agent_path}
        self._waiting: list[str] = []
        self._all: list[str] = []
        self._more = asyncio.Event()
        # One at a time: words that were refused come back before later ones are taken.
        self._flushing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """Everything that came so far."""
        return "".join(self._all)

    def add(self, text: str) -> None:
        """Take one piece of text; never waits."""
        if not text:
            return
        self._all.append(text)
        self._waiting.append(text)
        self._more.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Write what is left; shielded, so that a cancelled call keeps its last words."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
            self._writer = None
        await self._flush()

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            # A store that takes no writes may take them soon; if not, the end of the call says so.
            with contextlib.suppress(Unavailable):
                await asyncio.shield(self._flush())
            if self._waiting:
                self._more.set()
            await asyncio.sleep(FLUSH_S)

    async def _flush(self) -> None:
        async with self._flushing:
            if self._waiting:
                await self._append()

    async def _append(self) -> None:
        taken, self._waiting = self._waiting, []
        payload = {**self._about, "text": "".join(taken)}
        session_id = self._session_id
        try:
            await self._store.awrite(lambda db: frames.append(db, session_id, ("delta", payload)))
        except Unavailable:
            self._waiting = [*taken, *self._waiting]
            raise
