"""A socket client that stays on one session through every kill and notes what it saw."""

from __future__ import annotations

import threading

from cli.client import ClientError
from cli.stream import SessionStream
from selftest.record import Record

GIVE_UP_AFTER_S = 300.0


class Watcher(threading.Thread):
    """Reads a session from its first frame on, reconnecting where it was."""

    def __init__(self, url: str, token: str, session_id: str, record: Record) -> None:
        super().__init__(daemon=True, name=f"watcher-{session_id}")
        self.record = record
        self.session_id = session_id
        self.seen = record.watch(session_id)
        self.stream = SessionStream(
            url,
            token,
            session_id,
            resume_from={"output": 0, "events": 0},
            give_up_after_s=GIVE_UP_AFTER_S,
        )

    def run(self) -> None:
        """Read until the stream is closed or the session has ended."""
        try:
            for frame in self.stream:
                if frame.type == "closing" and frame.payload.get("code") == "resume_failed":
                    self.record.find("resume_refused", "a socket could not go on", self.session_id)
                if frame.seq is not None and frame.channel in self.seen.frames:
                    self.seen.add(frame.channel, frame.seq, frame.type)
        except ClientError as error:
            self.record.find("socket_refused", str(error), self.session_id)

    def stop(self) -> None:
        """Leave."""
        self.stream.close()
        self.join(timeout=30)
