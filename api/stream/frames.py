"""Frames that come from a client: read strictly, named by what is wrong with them."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from dataclasses import dataclass, field
from typing import Any

PTY_TYPES = frozenset({"stdin", "resize", "ack"})
SEQ_MAX = 2**53
HINT_CHARS_MAX = 200
DEPTH_MAX = 32
# Binary terminal frames: kind, length of the id, id, then (from the server) the seq.
STDOUT, SNAPSHOT, STDIN = 1, 2, 3
_SEQ = struct.Struct(">Q")
_SIZE = struct.Struct(">HH")


class BadFrame(Exception):
    """Not a frame of ours; the message is for whoever wrote the client."""

    def __init__(self, message: str, code: str = "bad_frame") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Incoming:
    """One frame of a client."""

    channel: str
    type: str
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Hello:
    """How a client wants to be attached."""

    output: int | None = None
    events: int | None = None
    device_hint: str | None = None
    binary_pty: bool = False


def read_frame(text: str) -> Incoming:
    """The frame in `text`; terminal frames may also come flat."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("not JSON") from None
    if not isinstance(raw, dict):
        raise BadFrame("a frame is a JSON object")
    _check_values(raw)
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise BadFrame("a frame has a type")
    if "channel" not in raw and kind in PTY_TYPES:
        return Incoming("pty", kind, {key: value for key, value in raw.items() if key != "type"})
    channel = raw.get("channel")
    payload = raw.get("payload")
    payload = {} if payload is None else payload
    if not isinstance(channel, str) or not isinstance(payload, dict):
        raise BadFrame("a frame has a channel, a type and a payload object")
    return Incoming(channel, kind, payload)


def _check_values(raw: Any) -> None:
    """Refuse what could not be sent back: half a letter, and levels without an end."""
    level = [raw]
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_text(value)
            elif isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list):
                inner += value
        if not inner:
            return
        level = inner
    raise BadFrame(f"a frame has at most {DEPTH_MAX} levels")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadFrame("a text in the frame is no valid Unicode") from None


def read_hello(frame: Incoming) -> Hello:
    """The first frame, or BadFrame."""
    if (frame.channel, frame.type) != ("control", "hello"):
        raise BadFrame("the first frame must be control hello", "hello_expected")
    seqs = frame.payload.get("resume_from_seq")
    if seqs is not None and not isinstance(seqs, dict):
        raise BadFrame("resume_from_seq is an object of output and events")
    hint = frame.payload.get("device_hint")
    if hint is not None and not isinstance(hint, str):
        raise BadFrame("device_hint is text")
    seqs = seqs or {}
    clean = None if hint is None else hint.replace("\0", "")[:HINT_CHARS_MAX]
    _check_text(clean or "")
    return Hello(
        output=_seq(seqs.get("output")),
        events=_seq(seqs.get("events")),
        device_hint=clean,
        binary_pty=frame.payload.get("binary_pty") is True,
    )


def read_bytes(payload: dict[str, Any]) -> bytes:
    """The base64 `data` of a stdin frame."""
    data = payload.get("data")
    if not isinstance(data, str):
        raise BadFrame("stdin carries base64 data")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadFrame("data is not base64") from None


def read_size(payload: dict[str, Any]) -> tuple[int, int]:
    """Columns and rows of a resize frame."""
    cols, rows = payload.get("cols"), payload.get("rows")
    for value, limit in ((cols, 1000), (rows, 500)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
            raise BadFrame("a terminal has 1 to 1000 columns and 1 to 500 rows")
    assert isinstance(cols, int)
    assert isinstance(rows, int)
    return cols, rows


def read_pty_id(payload: dict[str, Any]) -> str:
    """Which terminal a frame is about."""
    pty_id = payload.get("pty_id")
    if not isinstance(pty_id, str) or not 0 < len(pty_id) <= 64:
        raise BadFrame("a terminal frame names its pty_id")
    return pty_id


def read_binary_stdin(data: bytes) -> tuple[str, bytes]:
    """The terminal's id and the typed bytes of a binary frame."""
    if len(data) < 2 or data[0] != STDIN or len(data) < 2 + data[1]:
        raise BadFrame("a binary frame is kind, id length, id, bytes")
    try:
        return data[2 : 2 + data[1]].decode("ascii"), data[2 + data[1] :]
    except UnicodeDecodeError:
        raise BadFrame("a terminal's id is ASCII") from None


def binary_stdout(pty_id: str, seq: int, data: bytes) -> bytes:
    """Terminal output as a binary frame."""
    name = pty_id.encode("ascii")
    return bytes((STDOUT, len(name))) + name + _SEQ.pack(seq) + data


def binary_snapshot(pty_id: str, seq: int, size: tuple[int, int], data: bytes) -> bytes:
    """A whole screen as a binary frame; `size` is columns and rows."""
    name = pty_id.encode("ascii")
    return bytes((SNAPSHOT, len(name))) + name + _SEQ.pack(seq) + _SIZE.pack(*size) + data


def _seq(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= SEQ_MAX:
        raise BadFrame("a seq is a whole number from 0")
    return value
