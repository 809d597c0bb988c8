"""Frames of a session's socket and the seqs that were seen; it reads and writes no socket."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

# After these the stream connects again; after every other `closing` it is over.
PASSING_CLOSINGS = frozenset({"resume_failed", "unavailable"})


@dataclass(frozen=True)
class Frame:
    """One frame of the socket; `seq` only on the durable channels `output` and `events`."""

    channel: str
    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    seq: int | None = None

    @property
    def is_gap(self) -> bool:
        """Whether frames were missed that cannot be replayed; the next one is a `welcome`."""
        return self.type == "closing" and self.payload.get("code") == "resume_failed"

    @property
    def is_last(self) -> bool:
        """Whether the stream is over after this frame."""
        return self.type == "closing" and self.payload.get("code") not in PASSING_CLOSINGS


class FrameReader:
    """Reads frames across connections: none twice, and each `hello` asks for what was missed."""

    def __init__(self, resume_from: dict[str, int] | None = None) -> None:
        self.seen: dict[str, int] = dict(resume_from or {})
        self.resuming = resume_from is not None

    def hello(self) -> str:
        """The first frame of a connection."""
        payload: dict[str, Any] = {"device_hint": "holdfast cli"}
        if self.resuming:
            payload["resume_from_seq"] = self.seen
        return frame_text("control", "hello", payload)

    def read(self, data: str | bytes) -> Frame | None:
        """The frame, or None if it was seen before."""
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
        elif frame.is_gap:
            self.resuming = False
        elif frame.seq is not None and frame.channel in {"output", "events"}:
            if frame.seq <= self.seen.get(frame.channel, 0):
                return None
            self.seen[frame.channel] = frame.seq
        return frame


def frame_text(channel: str, kind: str, payload: dict[str, Any]) -> str:
    """A frame as it is sent."""
    return json.dumps({"channel": channel, "type": kind, "payload": payload})
