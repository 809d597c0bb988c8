"""The worker's way to the terminal host, and what is kept of a terminal when it closes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import ptys
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.showing import closing


class Terminals:
    """One connection to this machine's host, opened when it is first needed."""

    def __init__(self, store: OpenStore, socket_path: Path, state_dir: Path) -> None:
        self.store = store
        self._socket_path = socket_path
        self._state_dir = state_dir
        self._client: TerminalClient | None = None
        self._opening = asyncio.Lock()

    async def client(self) -> TerminalClient:
        """The connected client; starts a host if none answers."""
        async with self._opening:
            if self._client is None:
                self._client = await TerminalClient.connect(
                    self._socket_path, state_dir=self._state_dir
                )
            return self._client

    async def listener(self) -> TerminalClient:
        """A client of one's own that never starts a host: whoever listens can wait for one."""
        return await TerminalClient.connect(
            self._socket_path, state_dir=self._state_dir, start=False
        )

    async def close(self) -> None:
        """Let go of the host; what it runs goes on."""
        if self._client is not None:
            await self._client.close_connection()
            self._client = None

    async def store_closed(self, pty_id: str) -> bool:
        """Keep the transcript of a terminal that is over. Safe to repeat."""
        transcript = await closing(await self.client(), pty_id)
        return await ptys.close_with_transcript(self.store, pty_id, transcript)
