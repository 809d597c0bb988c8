"""A WebSocket client that costs next to nothing: it notes when each frame came, and no more.

The benchmark shares its cores with what it measures, so frames are decoded after the end.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import time
from typing import Any

RECEIVE_BYTES = 256 * 1024
TIMEOUT_S = 30.0
_TEXT, _PING, _PONG, _CLOSE = 1, 9, 10, 8


class LightSocket:
    """Says hello and is welcomed; `take` reads what has come. Answers pings."""

    def __init__(self, address: tuple[str, int], path: str, token: str) -> None:
        self.texts: list[tuple[float, bytes]] = []
        self.closed = False
        self._rest = b""
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._upgrade(path, token)
        self._send(_TEXT, json.dumps({"channel": "control", "type": "hello"}).encode())
        while not self.texts:
            self.take()
        self.welcome: dict[str, Any] = json.loads(self.texts.pop(0)[1])

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def take(self) -> None:
        """Read once; every whole frame gets the moment at which its last byte was here."""
        data = self._socket.recv(RECEIVE_BYTES)
        now = time.monotonic()
        self.closed = self.closed or not data
        data = self._rest + data
        at = 0
        while (frame := _frame_at(data, at)) is not None:
            opcode, payload, at = frame
            if opcode == _TEXT:
                self.texts.append((now, payload))
            elif opcode == _PING:
                self._send(_PONG, payload)
            elif opcode == _CLOSE:
                self.closed = True
        self._rest = data[at:]

    def close(self) -> None:
        """Leave without a word."""
        self._socket.close()

    def _upgrade(self, path: str, token: str) -> None:
        host, port = self._socket.getpeername()[:2]
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {token}",
        )
        self._socket.sendall("\r\n".join((*lines, "", "")).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1)
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise OSError(answer.decode(errors="replace"))

    def _send(self, opcode: int, payload: bytes) -> None:
        # A client's frame must be masked; a mask of zeros leaves it as it is.
        assert len(payload) < 126
        self._socket.sendall(bytes((0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0)) + payload)


def _frame_at(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Opcode, payload and where the next frame begins; None when this one is not whole yet."""
    if len(data) < at + 2:
        return None
    length, start = data[at + 1], at + 2
    if length >= 126:
        form, size = ("!H", 2) if length == 126 else ("!Q", 8)
        if len(data) < start + size:
            return None
        length, start = struct.unpack_from(form, data, start)[0], start + size
    if len(data) < start + length:
        return None
    return data[at] & 0x0F, data[start : start + length], start + length
