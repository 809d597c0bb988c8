"""The system socket: how many sessions run, at once and at every change."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import connect

from holdfast.client.session_socket import LOST, socket_address, socket_options

RETRY_S = 1.0


def system_frames(url: str, token: str, *, wait_s: float | None) -> Iterator[dict[str, Any]]:
    """Frames as they come; after `wait_s` without one the last is repeated. Reconnects for ever."""
    address, options = socket_address(url, "/system/socket"), socket_options(token)
    last: dict[str, Any] = {}
    while True:
        try:
            with connect(address, **options) as connection:
                while True:
                    with contextlib.suppress(TimeoutError):
                        last = json.loads(connection.recv(timeout=wait_s))
                    yield last
        except LOST:
            time.sleep(RETRY_S)
