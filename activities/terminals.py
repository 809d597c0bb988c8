"""The worker's way to the terminal host, and what is kept of a terminal when it closes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.folders.hidden import VARIABLE, as_variable
from holdfast.settings.part_environments import machine_environment
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import ptys
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import TerminalError
from holdfast.terminal.identity import Identity
from holdfast.terminal.showing import closing

HOST_LOOK_S = 0.05


class Terminals:
    """One connection to this machine's host, opened when it is first needed."""

    def __init__(
        self, store: OpenStore, socket_path: Path, state_dir: Path, hidden: Sequence[Path] = ()
    ) -> None:
        """`hidden`: real paths where no command may begin."""
        self.store = store
        self.hidden = hidden
        self._socket_path = socket_path
        self.state_dir = state_dir
        self.host_id: str | None = None  # of the host beside this worker, once it was asked
        self._client: TerminalClient | None = None
        self._opening = asyncio.Lock()
        self._builds_cages = False

    async def client(self) -> TerminalClient:
        """The connected client; starts a host if none answers."""
        async with self._opening:
            if self._client is None:
                self._client = await TerminalClient.connect(
                    self._socket_path,
                    state_dir=self.state_dir,
                    environment={
                        **machine_environment(os.environ),
                        VARIABLE: as_variable(self.hidden),
                    },
                )
            return self._client

    async def wait_for_host(self, within_s: float) -> bool:
        """Whether a host that somebody else starts answers in time."""
        deadline = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                async with await self.listener():
                    return True
            except TerminalError:
                await asyncio.sleep(HOST_LOOK_S)
        return False

    async def identity(self) -> Identity:
        """Who the host beside this worker is, and which of its lives this one is."""
        found = await (await self.client()).identity()
        self.host_id = found.id
        return found

    async def cage_trouble(self) -> str | None:
        """Why this machine can build no cage, and what to do; asked again until it can."""
        if self._builds_cages:
            return None
        about = await (await self.client()).host()
        self._builds_cages = bool(about["cage"])
        return str(about["cage_unavailable"]) or None

    async def listener(self) -> TerminalClient:
        """A client of one's own that never starts a host: whoever listens can wait for one."""
        return await TerminalClient.connect(
            self._socket_path, state_dir=self.state_dir, start=False
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
