"""Frames of the socket: what is read, what is refused, and the layout of binary ones."""

from __future__ import annotations

import json

import pytest

from api.stream import frames
from api.stream.connection import _why
from api.stream.frames import BadFrame, Hello, Incoming


def test_a_terminal_frame_may_come_flat() -> None:
    flat = json.dumps({"type": "stdin", "pty_id": "p", "data": "YQ=="})
    assert frames.read_frame(flat) == Incoming("pty", "stdin", {"pty_id": "p", "data": "YQ=="})
    whole = json.dumps({"channel": "pty", "type": "stdin", "payload": {"pty_id": "p"}})
    assert frames.read_frame(whole) == Incoming("pty", "stdin", {"pty_id": "p"})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", "{}", '{"type": 1}', '{"type": "x", "channel": 1}', "[" * 9999]
)
def test_what_is_no_frame_is_refused(text: str) -> None:
    with pytest.raises(BadFrame):
        frames.read_frame(text)


def test_a_hello_says_where_to_begin() -> None:
    payload = {"resume_from_seq": {"output": 3, "events": 0}, "device_hint": "x" * 999}
    hello = frames.read_hello(Incoming("control", "hello", payload))
    assert (hello.output, hello.events) == (3, 0)
    assert hello.device_hint == "x" * 200
    assert frames.read_hello(Incoming("control", "hello")) == Hello()


@pytest.mark.parametrize(
    "payload",
    [
        {"resume_from_seq": 3},
        {"resume_from_seq": {"output": -1}},
        {"resume_from_seq": {"output": 2**60}},
        {"resume_from_seq": {"events": "3"}},
        {"resume_from_seq": {"events": True}},
        {"device_hint": 7},
        {"device_hint": "\ud800"},
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(BadFrame):
        frames.read_hello(Incoming("control", "hello", payload))


@pytest.mark.req("K-046", "K-047")
def test_binary_frames_carry_kind_id_seq_and_bytes() -> None:
    out = frames.binary_stdout("PTY", 258, b"\x00hi")
    assert out == b"\x01\x03PTY" + (258).to_bytes(8, "big") + b"\x00hi"
    screen = frames.binary_snapshot("PTY", 1, (80, 24), b"x")
    assert screen == b"\x02\x03PTY" + (1).to_bytes(8, "big") + b"\x00\x50\x00\x18x"
    assert frames.read_binary_stdin(b"\x03\x03PTYls\n") == ("PTY", b"ls\n")
    for wrong in (b"", b"\x03", b"\x03\x09PTY", b"\x01\x03PTYx", b"\x03\x01\xff"):
        with pytest.raises(BadFrame):
            frames.read_binary_stdin(wrong)


@pytest.mark.req("K-046", "K-048")
def test_sizes_and_data_have_bounds() -> None:
    assert frames.read_size({"cols": 80, "rows": 24}) == (80, 24)
    for size in ({}, {"cols": 0, "rows": 1}, {"cols": 80, "rows": 9999}, {"cols": "a", "rows": 1}):
        with pytest.raises(BadFrame):
            frames.read_size(dict(size))
    assert frames.read_bytes({"data": "YQ=="}) == b"a"
    for data in (None, "%%%", "YQ"):
        with pytest.raises(BadFrame):
            frames.read_bytes({"data": data})
    for pty_id in (None, "", "x" * 65):
        with pytest.raises(BadFrame):
            frames.read_pty_id({"pty_id": pty_id})


@pytest.mark.req("K-089", "K-092")
def test_the_audit_log_tells_a_clean_end_from_a_timeout_and_a_loss() -> None:
    assert _why({"code": 1000, "reason": ""}) == "clean"
    assert _why({"code": 1005, "reason": ""}) == "clean"
    assert _why({"code": 1005}) == "error"
    assert _why({"code": 1006, "reason": "keepalive ping timeout"}) == "timeout"
    assert _why({"code": 1009, "reason": "too big"}) == "error"
