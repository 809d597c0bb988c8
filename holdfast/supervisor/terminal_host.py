"""The terminal host outlives the supervisor: find the living one by its socket."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

MACOS_LOCAL_PEERPID = 2


def living_pid(socket_path: Path) -> int | None:
    """The pid of the process that listens on the socket, or None when nobody does."""
    if not socket_path.exists():
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(socket_path))
            return _listener(connection)
        except OSError:
            return None


def _listener(connection: socket.socket) -> int:
    if sys.platform == "darwin":
        return connection.getsockopt(0, MACOS_LOCAL_PEERPID)
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
