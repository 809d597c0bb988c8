"""A session's socket that reconnects by itself and neither misses nor repeats a frame."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from holdfast.client.errors import Refused, Unreachable

FRAME_BYTES_MAX = 32 * 1024 * 1024
RETRY_S_MIN, RETRY_S_MAX = 0.1, 2.0
PASSING_STATUSES = {429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Frame:
    """One frame of the socket; `seq` only on the durable channels."""

    channel: str
    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    seq: int | None = None


class SessionStream:
    """Iterate over it for frames; `send` acts; `close` ends the iteration from any thread."""

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
        suffix = "?observe=1" if observe else ""
        self.address = f"ws{url.removeprefix('http')}/api/v1/sessions/{quote(session_id)}/socket"
        self.address += suffix
        self.headers = {"Authorization": f"Bearer {token}"}
        self.seen: dict[str, int] = dict(resume_from or {})
        self.resuming = resume_from is not None
        self.give_up_after_s = give_up_after_s
        self.connection: ClientConnection | None = None
        self.closed = False

    def __iter__(self) -> Iterator[Frame]:
        lost_at: float | None = None
        retry_s = RETRY_S_MIN
        while not self.closed:
            try:
                for frame in self._frames():
                    lost_at, retry_s = None, RETRY_S_MIN
                    yield frame
                    if frame.type == "closing" and frame.payload.get("code") != "resume_failed":
                        return
            except (OSError, ConnectionClosed, InvalidHandshake) as error:
                self._raise_when_final(error)
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self.give_up_after_s:
                    raise Unreachable(f"no connection to {self.address}: {error}") from error
            if not self.closed:
                time.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_S_MAX)

    def send(self, channel: str, kind: str, payload: dict[str, Any]) -> bool:
        """Send one frame; False when there is no connection at the moment."""
        if self.connection is None:
            return False
        try:
            self.connection.send(json.dumps({"channel": channel, "type": kind, "payload": payload}))
        except (OSError, ConnectionClosed):
            return False
        return True

    def close(self) -> None:
        """End the stream cleanly."""
        self.closed = True
        if self.connection is not None:
            self.connection.close()

    def _frames(self) -> Iterator[Frame]:
        with connect(
            self.address,
            additional_headers=self.headers,
            max_size=FRAME_BYTES_MAX,
            compression=None,
            open_timeout=10,
            close_timeout=2,
        ) as connection:
            self.connection = connection
            connection.send(json.dumps({"channel": "control", "type": "hello"} | self._hello()))
            for data in connection:
                if (frame := self._parse(data)) is not None:
                    yield frame
        self.connection = None

    def _hello(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"device_hint": "holdfast cli"}
        if self.resuming:
            payload["resume_from_seq"] = self.seen
        return {"payload": payload}

    def _parse(self, data: str | bytes) -> Frame | None:
        values = json.loads(data)
        frame = Frame(
            values.get("channel", ""),
            values.get("type", ""),
            values.get("payload") or {},
            values.get("seq"),
        )
        if frame.type == "welcome" and not self.resuming:
            # From here on a reconnect continues where this connection began.
            self.seen = dict(frame.payload.get("server_seq") or {})
            self.resuming = True
        elif frame.type == "closing" and frame.payload.get("code") == "resume_failed":
            self.resuming = False
        elif frame.seq is not None and frame.channel in {"output", "events"}:
            if frame.seq <= self.seen.get(frame.channel, 0):
                return None
            self.seen[frame.channel] = frame.seq
        return frame

    def _raise_when_final(self, error: Exception) -> None:
        if not isinstance(error, InvalidStatus):
            return
        status = error.response.status_code
        if status in PASSING_STATUSES:
            return
        code, message = "refused", f"the socket was refused with HTTP {status}"
        try:
            body = json.loads(error.response.body or b"{}")["error"]
            code, message = body["code"], body["message"]
        except (ValueError, KeyError, TypeError):
            pass
        raise Refused(status, code, message) from error
