"""The system socket: how many sessions run, at once and at every change."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

RETRY_S = 1.0


def system_frames(url: str, token: str, *, wait_s: float | None) -> Iterator[dict[str, Any]]:
    """Frames as they come; after `wait_s` without one the last is repeated. Reconnects for ever."""
    address = f"ws{url.removeprefix('http')}/api/v1/system/socket"
    headers = {"Authorization": f"Bearer {token}"}
    last: dict[str, Any] = {}
    while True:
        try:
            with connect(address, additional_headers=headers, compression=None) as connection:
                while True:
                    with contextlib.suppress(TimeoutError):
                        last = json.loads(connection.recv(timeout=wait_s))
                    yield last
        except (OSError, ConnectionClosed, InvalidHandshake):
            time.sleep(RETRY_S)
