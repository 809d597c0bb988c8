"""Frames on their way to clients: text for the few, bytes of the wire for what many watch."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pydantic_core import to_json
from websockets.frames import Frame, Opcode

from holdfast.domain.events import PtyAllocated
from holdfast.domain.lifecycle import OVER
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.log.news import EventText, FrameText


class Sent(NamedTuple):
    """One frame as it goes over the wire; the same bytes for everybody who watches.

    `over` marks one that may be the session's last; `pty_id` one that tells of a new terminal.
    """

    seq: int
    wire: bytes
    over: bool = False
    pty_id: str | None = None


def frame_text(channel: str, kind: str, payload: Any, seq: int | None = None) -> str:
    """One frame as JSON."""
    frame: dict[str, Any] = {"channel": channel, "type": kind}
    if seq is not None:
        frame["seq"] = seq
    frame["payload"] = payload
    return to_json(frame).decode()


def output_frame(row: FrameText) -> Sent:
    """A frame of the output channel. Its payload is JSON already and is not read again."""
    kind = json.dumps(row.type)
    text = f'{{"channel":"output","type":{kind},"seq":{row.seq},"payload":{row.payload}}}'
    return Sent(row.seq, wire(text))


def event_frame(row: EventText | EventRow) -> Sent:
    """A frame of the events channel."""
    data = json.loads(row.data) if isinstance(row.data, str) else row.data
    text = frame_text("events", row.kind, {**data, "event_id": row.id, "at": row.at}, row.seq)
    over = row.kind == "session.state" and data.get("to_state") in OVER
    pty_id = data.get("pty_id") if row.kind == PtyAllocated.kind else None
    return Sent(row.seq, wire(text), over, pty_id)


def wire(text: str) -> bytes:
    """A WebSocket message of its own; a server masks nothing, and we compress nothing."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=False)
