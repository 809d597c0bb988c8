"""A socket client that stays on one session through every kill and notes what it saw."""

from __future__ import annotations

import threading
import time

from holdfast.client.errors import ClientError
from holdfast.client.session_socket import SessionSocket
from holdfast.client.stream import SessionStream
from holdfast.selftest.record import Record

GIVE_UP_AFTER_S = 300.0
AGAIN_S = 0.5
CATCH_UP_S = 60.0


class Watcher(threading.Thread):
    """Reads a session from its first frame on, reconnecting where it was, also after its end."""

    def __init__(self, url: str, token: str, session_id: str, record: Record) -> None:
        super().__init__(daemon=True, name=f"watcher-{session_id}")
        self.address = (url, token, session_id)
        self.record = record
        self.session_id = session_id
        self.seen = record.watch(session_id)
        self.stream = self._stream()
        self._leaving = threading.Event()

    def run(self) -> None:
        """Read until told to leave: a session that has ended may be opened again."""
        while not self._leaving.is_set():
            try:
                self._read()
            except ClientError as error:
                self.record.find("socket_refused", str(error), self.session_id)
                return
            if not self._leaving.wait(AGAIN_S):
                self.stream = self._stream()

    def leave(self) -> None:
        """Stay until everything that the server has by now was seen, then go."""
        try:
            self.seen.due = self._server_has()
        except ClientError as error:
            self.record.find("socket_refused", str(error), self.session_id)
        deadline = time.monotonic() + CATCH_UP_S
        while self.is_alive() and not self._is_whole() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._leaving.set()
        self.stream.close()
        self.join(timeout=30)

    def _is_whole(self) -> bool:
        return all(self.seen.is_whole(channel) for channel in self.seen.frames)

    def _read(self) -> None:
        for frame in self.stream:
            if frame.type == "closing" and frame.payload.get("code") == "resume_failed":
                self.record.find("resume_refused", "a socket could not go on", self.session_id)
            if frame.seq is not None and frame.channel in self.seen.frames:
                self.seen.add(frame.channel, frame.seq, frame.type)

    def _stream(self) -> SessionStream:
        known = {channel: self.seen.last(channel) for channel in self.seen.frames}
        return self._stream_from(known)

    def _stream_from(self, seqs: dict[str, int] | None) -> SessionStream:
        return SessionStream(
            SessionSocket(*self.address, resume_from=seqs, give_up_after_s=GIVE_UP_AFTER_S)
        )

    def _server_has(self) -> dict[str, int]:
        asking = self._stream_from(None)
        try:
            for frame in asking:
                if frame.type == "welcome":
                    return dict(frame.payload["server_seq"])
        finally:
            asking.close()
        return {}
