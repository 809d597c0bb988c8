"""Ports of this machine: which are free, and which this supervisor has taken for itself."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from random import Random

# Below the range that kernels hand out to outgoing connections, which could take one any moment.
LOWEST, HIGHEST = 20_000, 32_000
TRIES_MAX = 200
_random = Random()


class Ports:
    """Ports claimed by a lock as well, since two supervisors may look at the same moment."""

    def __init__(self) -> None:
        self.locks: list[int] = []

    def claim(self, usual: int) -> int:
        """The usual port when it is free, else some other."""
        candidates = [usual, *(_random.randint(LOWEST, HIGHEST) for _ in range(TRIES_MAX))]
        for port in candidates:
            if self._lock(port):
                return port
        raise OSError("no free port found")

    def release(self) -> None:
        """Let others have them."""
        for descriptor in self.locks:
            os.close(descriptor)
        self.locks.clear()

    def _lock(self, port: int) -> bool:
        path = Path(tempfile.gettempdir()) / f"holdfast-port-{port}-{os.getuid()}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        if not is_free("127.0.0.1", port):
            os.close(descriptor)
            return False
        self.locks.append(descriptor)
        return True


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            # Binding beside another listener can succeed; listening there cannot.
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """Some port that is free now."""
    for _ in range(TRIES_MAX):
        port = _random.randint(LOWEST, HIGHEST)
        if is_free("127.0.0.1", port):
            return port
    raise OSError("no free port found")


def accepts(address: str) -> bool:
    """Whether something listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=0.2):
            return True
    except OSError:
        return False
