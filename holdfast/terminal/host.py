"""The terminal host: a socket on which clients start, watch and end processes that outlive them."""

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.folders.hidden import VARIABLE, of_variable
from holdfast.terminal.cages.limits import CageLimits
from holdfast.terminal.identity import Identity
from holdfast.terminal.link import Link
from holdfast.terminal.process import HostedProcess
from holdfast.terminal.protocol import ProtocolError
from holdfast.terminal.registry import TICK_S, Registry
from holdfast.terminal.remote_callers import Remote
from holdfast.terminal.screens.screen import Screens

logger = logging.getLogger(__name__)

CLIENTS_MAX = 256
GOODBYE_S = 2.0
WANTED_TICKS = 20
REMOTE_TICKS = 5
CONNECTIONS_WAITING_MAX = 128


class Host:
    """Accepts clients, looks after limits, and ends when it is told to."""

    def __init__(
        self,
        socket_path: Path,
        state_dir: Path,
        *,
        identity: Identity,
        idle_s: float,
        exit_after_s: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        remote: Remote | None = None,
    ) -> None:
        self._is_wanted = is_wanted
        self._remote = remote
        self.socket_path = socket_path
        self.identity = identity
        self.screens = Screens()
        self.registry = Registry(
            state_dir,
            self.screens,
            self.announce,
            hidden=(
                os.environ.get("HOLDFAST_HOME"),
                socket_path.parent,
                *of_variable(os.environ.get(VARIABLE)),
            ),
            idle_s=idle_s,
            limits=CageLimits.from_environment(os.environ),
        )
        self.links: set[Link] = set()
        self.stopping = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()
        self._exit_after_s = exit_after_s

    async def serve(self) -> None:
        """Serve until told to stop; then end every process and go."""
        listener = listen(self.socket_path)
        ours = self.socket_path.stat()
        server = await asyncio.start_unix_server(self._accept, sock=listener)
        far = None if self._remote is None else await self._remote.listen(self._serve_link)
        ticking = asyncio.create_task(self._tick())
        try:
            await self.stopping.wait()
        finally:
            ticking.cancel()
            server.close()
            if far is not None:
                far.close()
            await self.registry.end_all()
            await self.screens.stop()
            self.registry.close_cages()
            await self._say_goodbye()
            remove_own(self.socket_path, ours)

    def announce(self, event: str, process: HostedProcess, details: dict[str, Any]) -> None:
        """Tell all who listen what happened to a process."""
        for link in tuple(self.links):
            link.tell(event, process, details)

    async def _say_goodbye(self) -> None:
        for link in tuple(self.links):
            link.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=GOODBYE_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_allowed(writer):
            await self._serve_link(reader, writer, caller="")
        else:
            writer.close()

    async def _serve_link(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: str
    ) -> None:
        """Serve a client of this machine, or the caller of that name from another one."""
        if len(self.links) >= CLIENTS_MAX:
            writer.close()
            return
        link = Link(self, reader, writer, caller=caller)
        self.links.add(link)
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        try:
            await link.serve()
        except (ProtocolError, ConnectionError, TimeoutError) as error:
            logger.info("a client was cut off: %s", error)
        finally:
            self.links.discard(link)
            self._serving.discard(serving)
            link.close()

    async def _tick(self) -> None:
        idle_for = 0.0
        for tick in itertools.count(1):
            await asyncio.sleep(TICK_S)
            try:
                self.registry.tick()
            except Exception:
                # One process that cannot be looked at must not stop the clocks of the others.
                logger.exception("a look at the limits failed")
            idle_for = 0.0 if self.links or self.registry.live else idle_for + TICK_S
            if self._exit_after_s is not None and idle_for >= self._exit_after_s:
                self.stopping.set()
            if self._remote is not None and tick % REMOTE_TICKS == 0:
                self._remote.look(self.links)
            if tick % WANTED_TICKS == 0 and not self._is_wanted():
                # Nobody can reach this host any more, nor what it runs.
                self.stopping.set()


def listen(path: Path) -> socket.socket:
    """A socket that only this user can reach; the lock guarantees that an old file is stale."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(draft))
    finally:
        os.umask(before)
    listener.listen(CONNECTIONS_WAITING_MAX)
    # Renamed when it already listens, so that whoever finds it can connect.
    draft.rename(path)
    return listener


def remove_own(path: Path, ours: os.stat_result) -> None:
    """Remove the socket unless another host's is there by now."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), ours):
            path.unlink()


def is_allowed(writer: asyncio.StreamWriter) -> bool:
    """Whether the other side is this user or root, as the kernel says."""
    peer = writer.get_extra_info("socket")
    layout = struct.Struct("3i")
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    _, user, _ = layout.unpack(raw)
    return user in (0, os.geteuid())
