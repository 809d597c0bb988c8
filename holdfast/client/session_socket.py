"""A session's socket without its input and output: address, options, seqs and reconnecting."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from holdfast.client.errors import Refused, Unreachable
from holdfast.client.frames import Frame, FrameReader
from holdfast.client.requests import authorization

# What a lost or refused connection raises.
LOST = (OSError, ConnectionClosed, InvalidHandshake)
FRAME_BYTES_MAX = 32 * 1024 * 1024
RETRY_S_MIN, RETRY_S_MAX = 0.1, 2.0
PASSING_STATUSES = {429, 500, 502, 503, 504}


class SessionSocket:
    """What a stream needs to know to connect, to read a frame, and to connect again."""

    def __init__(
        self,
        url: str,
        token: str,
        session_id: str,
        *,
        observe: bool = True,
        resume_from: dict[str, int] | None = None,
        give_up_after_s: float = 60.0,
    ) -> None:
        path = f"/sessions/{quote(session_id)}/socket" + ("?observe=1" if observe else "")
        self.address = socket_address(url, path)
        self.options = socket_options(token)
        self.reader = FrameReader(resume_from)
        self.give_up_after_s = give_up_after_s
        self._retry_s = RETRY_S_MIN
        self._lost_at: float | None = None

    @property
    def seen(self) -> dict[str, int]:
        """The last seq of each channel."""
        return dict(self.reader.seen)

    def hello(self) -> str:
        """The first frame of a connection."""
        return self.reader.hello()

    def read(self, data: str | bytes) -> Frame | None:
        """The frame, unless it was seen before."""
        frame = self.reader.read(data)
        if frame is not None:
            self._lost_at, self._retry_s = None, RETRY_S_MIN
        return frame

    def pause_s(self, error: Exception | None) -> float:
        """How long to wait before the next connection; raises when there should be none."""
        refusal = _refusal(error)
        if refusal is not None:
            raise refusal from error
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at > self.give_up_after_s:
            reason = error or "it was closed before a frame came"
            raise Unreachable(f"no connection to {self.address}: {reason}") from error
        pause_s, self._retry_s = self._retry_s, min(self._retry_s * 2, RETRY_S_MAX)
        return pause_s


def socket_address(url: str, path: str) -> str:
    """The address of a WebSocket below /api/v1."""
    return f"ws{url.removeprefix('http')}/api/v1{path}"


def socket_options(token: str) -> dict[str, Any]:
    """What `connect` of websockets takes, of either kind; no proxy, as for our HTTP requests."""
    return {
        "additional_headers": authorization(token),
        "max_size": FRAME_BYTES_MAX,
        "compression": None,
        "proxy": None,
        "open_timeout": 10,
        "close_timeout": 2,
    }


def _refusal(error: Exception | None) -> Refused | None:
    """Why the server will not accept this connection later either; None if it may."""
    if not isinstance(error, InvalidStatus) or error.response.status_code in PASSING_STATUSES:
        return None
    status = error.response.status_code
    try:
        body = json.loads(error.response.body or b"{}")["error"]
        return Refused(status, body["code"], body["message"])
    except (ValueError, KeyError, TypeError):
        return Refused(status, "refused", f"the socket was refused with HTTP {status}")
