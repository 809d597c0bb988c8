"""The API's connections to terminal hosts: this machine's by its socket, others by TLS."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast.domain.cages.shown import UNKNOWN, MachineCage
from holdfast.domain.errors import BadRequest, Conflict, NoHost, NotFound, Refusal, Unavailable
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_hosts import HostRow
from holdfast.storage.hosts import hosts
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import (
    HostLost,
    HostUnavailable,
    LimitReached,
    TerminalError,
    UnknownProcess,
)
from holdfast.terminal.remote import RemoteTerminalClient

NO_ANSWER = "the terminal host does not answer"

CAGE_KEPT_S, CAGE_ASKED_AGAIN_S, CAGE_TOLD_WITHIN_S = 60.0, 2.0, 2.0


class Terminals:
    """Connects on first use; the supervisor keeps this machine's host running."""

    def __init__(self, settings: Settings, store: OpenStore) -> None:
        self._settings = settings
        self._store = store
        self._own: TerminalClient | None = None
        self._others: dict[str, TerminalClient] = {}
        self._connecting = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._cage, self._ask_at = UNKNOWN, 0.0

    async def client(self, host_id: str | None = None) -> TerminalClient:
        """The shared client of that host, or Unavailable while it does not answer."""
        elsewhere = await self._elsewhere(host_id)
        if elsewhere is None:
            return await self._own_client()
        if elsewhere.id not in self._others:
            self._others[elsewhere.id] = self._dialled(elsewhere)
        return self._others[elsewhere.id]

    async def new_client(self, host_id: str | None = None) -> TerminalClient:
        """A client of one's own: each socket watches over its own connections to hosts."""
        elsewhere = await self._elsewhere(host_id)
        return await self._local() if elsewhere is None else self._dialled(elsewhere)

    async def host_for(self, session: SessionRow) -> str:
        """The session's host; without one it gets this machine's, else one that can be dialled."""
        if session.host_id is not None:
            return session.host_id
        chosen = await self._with_folder(session.working_directory)
        return await self._store.awrite(lambda db: hosts.give(db, session.id, chosen))

    async def _with_folder(self, folder: str) -> str:
        found = await self._store.aread(hosts.candidates)
        others = [host.id for host in found if host.address]
        try:
            here = (await (await self._own_client()).identity()).id
        except (Unavailable, TerminalError, OSError):
            if not others:
                raise Unavailable(NO_ANSWER) from None
            return others[0]
        if await asyncio.to_thread(os.path.isdir, folder):
            return here
        elsewhere = [host_id for host_id in others if host_id != here]
        if not elsewhere:
            raise NoHost(f"the folder {folder} is not on this host")
        return elsewhere[0]

    async def _elsewhere(self, host_id: str | None) -> HostRow | None:
        """The host if it is another machine's; None: this machine's is meant."""
        if host_id is None or await self._is_here(host_id):
            return None
        host = await self._store.aread(lambda db: hosts.find(db, host_id))
        if host is None or not host.address:
            raise Unavailable("it is on another host, which this API does not reach")
        return host

    async def _is_here(self, host_id: str) -> bool:
        try:
            return (await (await self._own_client()).identity()).id == host_id
        except (Unavailable, TerminalError, OSError):
            return False

    def _dialled(self, host: HostRow) -> TerminalClient:
        return RemoteTerminalClient(host.address, host.id, self._settings.fleet_dir)

    async def _own_client(self) -> TerminalClient:
        async with self._connecting:
            if self._own is None:
                self._own = await self._local()
            return self._own

    async def _local(self) -> TerminalClient:
        try:
            return await TerminalClient.connect(
                self._settings.terminal_socket,
                state_dir=self._settings.terminal_state_dir,
                start=False,
            )
        except (TerminalError, OSError) as error:
            raise Unavailable(NO_ANSWER) from error

    async def cage(self) -> MachineCage:
        """The cage of this machine, as the host told it within the last minute."""
        async with self._asking:
            if time.monotonic() >= self._ask_at:
                self._cage = await self._ask()
                known = self._cage.kind != "unknown"
                self._ask_at = time.monotonic() + (CAGE_KEPT_S if known else CAGE_ASKED_AGAIN_S)
            return self._cage

    async def _ask(self) -> MachineCage:
        try:
            async with asyncio.timeout(CAGE_TOLD_WITHIN_S):
                answer = await (await self.client()).host()
        except (TerminalError, Refusal, TimeoutError) as error:
            return MachineCage("unknown", why=str(error) or "the terminal host is slow to answer")
        told = answer.get("machine_cage")
        if told is None:
            return MachineCage("unknown", why="the terminal host is of an earlier release")
        return MachineCage(**{**told, "reduced": tuple(told["reduced"])})

    async def close(self) -> None:
        """Let go of the hosts; their terminals go on."""
        for client in (*self._others.values(), *filter(None, [self._own])):
            await client.close_connection()
        self._own = None
        self._others.clear()


def refusal_of(error: TerminalError) -> Refusal:
    """The refusal that says what the terminal host said."""
    if isinstance(error, UnknownProcess):
        return NotFound("Terminal not found.")
    if isinstance(error, LimitReached):
        return Conflict(error.message, error.details or None)
    if isinstance(error, HostUnavailable | HostLost):
        return Unavailable(NO_ANSWER)
    return BadRequest(error.message, error.details or None)
