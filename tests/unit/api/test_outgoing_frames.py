"""Frames as they go over the wire: JSON that says what was stored, in portions of bounded size."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Opcode
from websockets.protocol import OPEN, Protocol, Side

from api.stream.connection import WRITTEN_BYTES_MAX, _portions
from api.stream.outgoing import Sent, event_frame, output_frame
from holdfast.storage.log.news import EventText, FrameText


def unwrapped(wire: bytes) -> list[dict[str, Any]]:
    """The frames that a client reads from these bytes."""
    client = Protocol(Side.CLIENT, state=OPEN, max_size=None)
    client.receive_data(wire)
    received: list[Any] = client.events_received()
    assert all(frame.opcode is Opcode.TEXT and frame.fin for frame in received)
    return [json.loads(frame.data) for frame in received]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts=st.lists(st.text(max_size=300), min_size=1, max_size=5), padding=st.integers(0, 70000))
def test_a_stored_payload_arrives_as_it_was(texts: list[str], padding: int) -> None:
    payloads = [{"text": text + "x" * padding} for text in texts]
    sent = [
        output_frame(FrameText(seq, "delta", json.dumps(payload, ensure_ascii=False)))
        for seq, payload in enumerate(payloads, start=7)
    ]
    assert unwrapped(b"".join(frame.wire for frame in sent)) == [
        {"channel": "output", "type": "delta", "seq": seq, "payload": payload}
        for seq, payload in enumerate(payloads, start=7)
    ]


def test_an_event_says_whether_it_may_be_the_last() -> None:
    ended = EventText(3, "session.state", "E1", 99, '{"to_state": "ended"}')
    idle = EventText(4, "session.state", "E2", 99, '{"to_state": "idle"}')
    assert event_frame(ended).over
    assert not event_frame(idle).over
    assert unwrapped(event_frame(idle).wire)[0]["payload"] == {
        "to_state": "idle",
        "event_id": "E2",
        "at": 99,
    }


@settings(max_examples=30, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 3 * WRITTEN_BYTES_MAX), max_size=12))
def test_portions_hold_every_frame_in_order_and_are_bounded(sizes: list[int]) -> None:
    frames = [Sent(seq, bytes(size)) for seq, size in enumerate(sizes)]
    portions = list(_portions(frames))
    assert [frame for some in portions for frame in some] == frames
    for some in portions:
        assert len(some) == 1 or sum(len(frame.wire) for frame in some) <= WRITTEN_BYTES_MAX
