"""Doors of cages: a socket that listens inside a cage's network and is served by `egress.py`.

Nothing of ours runs inside. bwrap waits at a gate until the socket is there; the child that makes
it enters the cage's network, and hands the socket out.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.cages.destinations import Destinations
from holdfast.terminal import tree
from holdfast.terminal.cages.egress_environment import ADDRESS
from holdfast.terminal.errors import CageSpawnFailed
from holdfast.terminal.launch import Launched

logger = logging.getLogger(__name__)

WAITING_MAX = 128
STATUS_BYTES_MAX = 4096
GATE_TIMEOUT_S = 30.0
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS = 0xB701
IP_FREEBIND = 15
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Door:
    """What one cage was given; kept for a proxy process that has to be started again."""

    rules: Destinations
    listener: socket.socket


class Doors:
    """All doors of the host, and the one process that serves them."""

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The proxy process, so that the host does not take it for an orphan."""
        return None if self._child is None else self._child.pid

    async def open(self, name: str, rules: Destinations, launched: Launched) -> None:
        """Give the cage its door and let its program start; CageSpawnFailed if that fails."""
        try:
            child = await _first_process(launched)
            self._doors[name] = Door(rules, listen_inside(child, launched.pid))
            self._tell(name)
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            raise CageSpawnFailed(f"the cage got no way to its network: {error}") from error
        launched.open_gate()

    def close(self, name: str) -> None:
        """The cage is over."""
        door = self._doors.pop(name, None)
        if door is not None:
            door.listener.close()
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.send(json.dumps({"name": name}).encode())

    def tick(self) -> None:
        """Start the proxy process again if it died, with the doors it had."""
        if self._child is not None and self._child.poll() is not None:
            logger.warning("the proxy of the cages died")
            self.stop()
            for name in self._doors:
                self._tell(name)

    def stop(self) -> None:
        """End the proxy process."""
        if self._control is not None:
            self._control.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._control = self._child = None

    def _tell(self, name: str) -> None:
        if self._control is None:
            self._start()
        assert self._control is not None
        door = self._doors[name]
        order = json.dumps({"name": name, "rules": door.rules.to_json()}).encode()
        socket.send_fds(self._control, [order], [door.listener.fileno()])

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        module = "holdfast.terminal.cages.egress"
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        theirs.close()
        self._control = ours


async def _first_process(launched: Launched) -> int:
    """The first process inside, as bwrap reports it before it waits at the gate."""
    assert launched.status is not None
    # Its own descriptor: the other is closed when the process ends meanwhile.
    status = os.dup(launched.status)
    try:
        async with asyncio.timeout(GATE_TIMEOUT_S):
            # bwrap writes its line in several parts.
            while b"\n" not in launched.heard:
                await _readable(status)
                said = os.read(status, STATUS_BYTES_MAX)
                if not said:
                    raise OSError("the cage could not be set up")
                launched.heard += said
    finally:
        os.close(status)
    return int(json.loads(launched.heard.partition(b"\n")[0])["child-pid"])


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def listen_inside(child: int, leader: int) -> socket.socket:
    """A socket that listens in the network of a cage, made by a child that goes there."""
    network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair()
    try:
        status = tree.read_status(child)
        if status is None or status.parent != leader:
            raise OSError("the cage is over")
        if os.path.samestat(os.fstat(network), Path("/proc/self/ns/net").stat()):
            raise OSError("the cage has no network of its own")
        helper = os.fork()
        if helper == 0:
            _listen_and_leave(network, theirs)
        theirs.close()
        os.waitpid(helper, 0)
        words, descriptors, _, _ = socket.recv_fds(ours, 1024, 1)
        if not descriptors:
            raise OSError(words.decode(errors="replace") or "no socket could be made in the cage")
        return socket.socket(fileno=descriptors[0])
    finally:
        for end in (ours, theirs):
            end.close()
        os.close(network)


def _listen_and_leave(network: int, answer: socket.socket) -> None:
    """In the child: enter the cage's network, as the owner of its user namespace; never returns."""
    try:
        _enter(fcntl.ioctl(network, NS_GET_USERNS), CLONE_NEWUSER)
        _enter(network, CLONE_NEWNET)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # bwrap may not have given the loopback its address yet.
        listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        listener.bind(ADDRESS)
        listener.listen(WAITING_MAX)
        socket.send_fds(answer, [b"made"], [listener.fileno()])
    except BaseException as error:  # noqa: BLE001 (the host hears of it)
        answer.send(str(error).encode()[:500])
    finally:
        os._exit(0)


def _enter(namespace: int, kind: int) -> None:
    if LIBC.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), "the namespace cannot be entered")
