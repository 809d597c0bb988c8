"""Whatever a client sends: an error frame or a clean close, and the session is untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.support.servers.api_server import Caller, hear, hear_until, say

CHANNELS = st.sampled_from(["control", "pty", "output", "events", "nonsense", ""])
TYPES = st.sampled_from(["hello", "ping", "stdin", "resize", "ack", "closing", "nonsense", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PAYLOADS = st.dictionaries(
    st.sampled_from(["pty_id", "data", "cols", "rows", "resume_from_seq", "bytes", "x"]),
    VALUES,
    max_size=4,
)
FRAMES = st.fixed_dictionaries({"channel": CHANNELS, "type": TYPES, "payload": PAYLOADS | VALUES})
SENT = st.one_of(
    FRAMES.map(json.dumps),
    VALUES.map(json.dumps),
    st.text(max_size=60),
    st.binary(max_size=60),
)


@pytest.fixture
def session_id(caller: Caller, tmp_path: Path) -> str:
    found: str = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    return found


@settings(
    max_examples=int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "20")),
    deadline=None,
)
@given(sent=st.lists(SENT, max_size=12))
def test_no_frame_harms_an_attached_session(
    caller: Caller, session_id: str, sent: list[str | bytes]
) -> None:
    socket, welcome = caller.attach(session_id, observe=True)
    with socket:
        assert welcome["type"] == "welcome"
        for data in sent:
            socket.send(data)
        say(socket, "control", "ping", n=1)
        heard = hear_until(socket, "pong")
        while heard[-1]["payload"] != {"n": 1}:
            heard = hear_until(socket, "pong")
        for frame in heard:
            assert frame["channel"] in ("control", "events")
    assert caller.http.get(f"/sessions/{session_id}").json()["state"] == "idle"


@settings(
    max_examples=int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "20")),
    deadline=None,
)
@given(first=SENT)
def test_a_wrong_first_frame_is_answered_and_the_socket_closed(
    caller: Caller, session_id: str, first: str | bytes
) -> None:
    with caller.socket(f"/sessions/{session_id}/socket?observe=1") as socket:
        socket.send(first)
        codes = codes_until_closed(socket)
    assert codes[0] in ("bad_frame", "hello_expected", "resume_failed", "welcome")
    assert caller.http.get(f"/sessions/{session_id}").json()["state"] == "idle"


def codes_until_closed(socket: ClientConnection) -> list[str]:
    codes: list[str] = []
    while True:
        try:
            frame = hear(socket)
        except ConnectionClosed:
            assert socket.close_code in (4400, 4409)
            return codes
        if frame["type"] == "welcome":
            return ["welcome"]
        codes.append(frame["payload"]["code"])


def close_code(socket: ClientConnection, data: str | bytes, **options: Any) -> int | None:
    """Send this, then read until the socket is closed."""
    try:
        socket.send(data, **options)
        while True:
            hear(socket)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


@pytest.mark.parametrize("data", ["x" * 10_000_000, b"x" * 10_000_000], ids=["text", "binary"])
def test_a_frame_of_ten_megabytes_closes_the_socket(
    caller: Caller, session_id: str, data: str | bytes
) -> None:
    socket, _ = caller.attach(session_id)
    assert close_code(socket, data) in (None, 1009)
    assert caller.http.get(f"/sessions/{session_id}").json()["state"] == "idle"


def test_whoever_never_stops_sending_nonsense_is_closed(caller: Caller, session_id: str) -> None:
    socket, _ = caller.attach(session_id)
    with socket:
        for _ in range(101):
            socket.send("nonsense")
        heard = hear_until(socket, "closing")
        assert heard[-1]["payload"]["code"] == "too_many_bad_frames"


def test_text_that_is_no_unicode_closes_the_socket(caller: Caller, session_id: str) -> None:
    socket, _ = caller.attach(session_id)
    assert close_code(socket, b"\xff\xfe", text=True) in (None, 1007)
