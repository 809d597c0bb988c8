"""The frames of the terminal host: what goes in comes out, and nothing else gets in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.terminal import protocol
from holdfast.terminal.errors import BY_CODE, CageUnavailable, TerminalError, from_wire, to_wire
from holdfast.terminal.protocol import Frame, FrameDecoder, FrameType, ProtocolError

FRAMES = st.builds(
    Frame, st.sampled_from(FrameType), st.integers(0, 2**32 - 1), st.binary(max_size=200)
)


def encoded(frame: Frame) -> bytes:
    return protocol.encode(frame.type, frame.channel, frame.payload)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(FRAMES, max_size=8), st.integers(1, 40))
def test_frames_survive_any_cut_of_the_stream(frames: list[Frame], step: int) -> None:
    stream = b"".join(map(encoded, frames))
    decoder = FrameDecoder()
    found = [
        frame
        for start in range(0, len(stream), step)
        for frame in decoder.feed(stream[start : start + step])
    ]
    assert found == frames


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_refused_or_waited_for_and_never_more(garbage: bytes) -> None:
    decoder = FrameDecoder()
    try:
        frames = decoder.feed(garbage)
    except ProtocolError:
        return
    assert sum(len(encoded(frame)) for frame in frames) <= len(garbage)


@pytest.mark.parametrize("length", [0, 4, protocol.PAYLOAD_BYTES_MAX + 6, 2**32 - 1])
def test_a_frame_of_impossible_length_ends_the_connection(length: int) -> None:
    header = protocol.HEADER.pack(length, FrameType.OUTPUT, 1)
    with pytest.raises(ProtocolError, match="length"):
        FrameDecoder().feed(header)


def test_a_payload_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        protocol.encode(FrameType.INPUT, 1, b"x" * (protocol.PAYLOAD_BYTES_MAX + 1))


@pytest.mark.parametrize("payload", [b"", b"nonsense", b"[1]", b"\xff", b"[" * 100_000])
def test_a_payload_that_is_no_json_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        Frame(FrameType.REQUEST, 0, payload).json()


def test_a_credit_that_is_too_short_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="shorter"):
        protocol.decode_credit(b"\x00")


def test_output_carries_its_position() -> None:
    [frame] = FrameDecoder().feed(protocol.encode_output(3, 2**40, b"bytes"))
    assert frame.channel == 3
    assert protocol.decode_output(frame.payload) == (2**40, b"bytes")


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_every_error_survives_the_wire(kind: type[TerminalError]) -> None:
    error = from_wire(to_wire(kind("why", key="k")))
    assert type(error) is kind
    assert (error.message, error.details) == ("why", {"key": "k"})


def test_an_error_of_a_newer_host_is_still_an_error() -> None:
    assert type(from_wire({"code": "from_the_future", "message": "?"})) is TerminalError
    assert CageUnavailable("").code == "cage_unavailable"
