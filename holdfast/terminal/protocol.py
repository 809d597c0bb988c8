"""The language of the terminal host: frames of `u32 length | u8 type | u32 channel | payload`.

Length counts what follows it. Requests, replies and events are JSON; output, input, snapshots and
credits are binary. A channel is one attachment of one connection, numbered by the client; 0 is the
connection itself. The first frame of a client is a `hello` request with the versions it speaks.
"""

import asyncio
import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

VERSION = 1
# The host outlives deployments of its clients, so it also serves the version before its own.
VERSIONS_SERVED = (1,)
PAYLOAD_BYTES_MAX = 1024 * 1024 + 64
INPUT_BYTES_MAX = 64 * 1024
CHUNK_BYTES_MAX = 64 * 1024
# A worker reads the output of all its commands through one connection.
CHANNELS_MAX = 1024
REQUESTS_OPEN_MAX = 2048
HEADER = struct.Struct(">IBI")
SEQUENCE = struct.Struct(">Q")
CREDIT = struct.Struct(">I")
SNAPSHOT = struct.Struct(">QIHHIB")
# Between the host and its screen emulator.
SCREEN_OPEN = struct.Struct(">QHHI")
SCREEN_SIZE = struct.Struct(">HH")
SCREEN_SHOW = struct.Struct(">IB")
SCREEN_SHOWN = struct.Struct(">I")
SHOW_HISTORY, SHOW_TEXT = 1, 2


class FrameType(IntEnum):
    """What a frame carries."""

    REQUEST = 1
    REPLY = 2
    EVENT = 3
    OUTPUT = 16
    INPUT = 17
    CREDIT = 18
    SNAPSHOT = 19
    # Between the host and its screen emulator only.
    OPEN = 32
    FEED = 33
    RESIZE = 34
    DROP = 35
    SHOW = 36
    FED = 37
    ANSWER = 38


class ProtocolError(Exception):
    """The other side does not speak this protocol; the connection is over."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the wire."""

    type: FrameType
    channel: int
    payload: bytes

    def json(self) -> dict[str, Any]:
        """The payload as a JSON object, or ProtocolError."""
        try:
            value = json.loads(self.payload)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a payload is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ProtocolError("a payload is not a JSON object")
        return value


class FrameDecoder:
    """Bytes in, whole frames out; never holds more than one unfinished frame."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order."""
        self._pending += data
        frames: list[Frame] = []
        start = 0
        while len(self._pending) - start >= HEADER.size:
            length, kind, channel = HEADER.unpack_from(self._pending, start)
            end = start + 4 + check_length(length)
            if len(self._pending) < end:
                break
            payload = bytes(self._pending[start + HEADER.size : end])
            frames.append(Frame(check_type(kind), channel, payload))
            start = end
        del self._pending[:start]
        return frames


def encode(kind: FrameType, channel: int, payload: bytes) -> bytes:
    """The bytes of one frame."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ProtocolError(f"a payload of {len(payload)} bytes is too long")
    return HEADER.pack(len(payload) + HEADER.size - 4, kind, channel) + payload


def encode_json(kind: FrameType, channel: int, value: dict[str, Any]) -> bytes:
    """The bytes of one JSON frame."""
    return encode(kind, channel, json.dumps(value, separators=(",", ":")).encode())


def encode_output(channel: int, seq: int, data: bytes | memoryview) -> bytes:
    """The bytes of one output frame: the position, then what follows it."""
    return encode(FrameType.OUTPUT, channel, SEQUENCE.pack(seq) + data)


def decode_output(payload: bytes) -> tuple[int, bytes]:
    """Position and bytes of an output frame."""
    return int(unpack(SEQUENCE, payload)[0]), payload[SEQUENCE.size :]


def encode_credit(channel: int, amount: int) -> bytes:
    """The bytes of one credit frame: the sender may be sent `amount` bytes more."""
    return encode(FrameType.CREDIT, channel, CREDIT.pack(amount))


def decode_credit(payload: bytes) -> int:
    """How many bytes more the other side may be sent."""
    return int(unpack(CREDIT, payload)[0])


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, or None at the end of the connection, silent or broken as it may be."""
    try:
        header = await reader.readexactly(HEADER.size)
        length, kind, channel = HEADER.unpack(header)
        payload = await reader.readexactly(check_length(length) - (HEADER.size - 4))
    except (asyncio.IncompleteReadError, OSError):
        return None
    return Frame(check_type(kind), channel, payload)


def check_length(length: int) -> int:
    """`length` itself if a frame may have it."""
    if not HEADER.size - 4 <= length <= PAYLOAD_BYTES_MAX + HEADER.size - 4:
        raise ProtocolError(f"a frame cannot have a length of {length}")
    return length


def check_type(kind: int) -> FrameType:
    """The frame type with this number."""
    try:
        return FrameType(kind)
    except ValueError:
        raise ProtocolError(f"there is no frame type {kind}") from None


def unpack(layout: struct.Struct, payload: bytes) -> tuple[Any, ...]:
    """The fields at the start of a payload, or ProtocolError if it is too short."""
    if len(payload) < layout.size:
        raise ProtocolError("a payload is shorter than its type demands")
    return layout.unpack_from(payload)
