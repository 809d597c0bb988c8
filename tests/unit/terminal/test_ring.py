"""The ring of a terminal: the last bytes by position, bounded in bytes and lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.terminal.screens.ring import RING_BYTES_KEPT, Ring


@pytest.mark.req("K-049", "K-051")
@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=60), st.data())
def test_the_ring_returns_exactly_the_bytes_at_a_position(
    pieces: list[bytes], data: st.DataObject
) -> None:
    ring = Ring(bytes_max=100_000)
    for piece in pieces:
        ring.append(piece)
    whole = b"".join(pieces)
    assert ring.end == len(whole)
    seq = data.draw(st.integers(ring.start, ring.end))
    limit = data.draw(st.integers(0, 70_000))
    assert ring.read(seq, limit) == whole[seq : seq + limit]


@pytest.mark.req("K-049")
def test_the_ring_keeps_ten_thousand_lines_and_not_many_more() -> None:
    ring = Ring()
    line = b"x" * 99 + b"\n"
    for _ in range(25_000):
        ring.append(line)
    kept = ring.read(ring.start, ring.end - ring.start)
    assert 9_500 <= kept.count(b"\n") <= 10_200
    assert ring.lines_total == 25_000
    assert not ring.whole


@pytest.mark.req("K-049")
@pytest.mark.parametrize("lines_max", [3_000, 50_000])
def test_the_ring_keeps_as_many_lines_as_configured(lines_max: int) -> None:
    ring = Ring(lines_max=lines_max)
    for _ in range(lines_max + 5_000):
        ring.append(b"x" * 299 + b"\n")
    kept = ring.read(ring.start, ring.end - ring.start).count(b"\n")
    assert lines_max - 60 <= kept <= lines_max + 60


def test_bytes_bound_the_ring_when_lines_do_not() -> None:
    ring = Ring()
    for _ in range(100):
        ring.append(b"x" * 65536)
    assert ring.end - ring.start <= 4 * 1024 * 1024


def test_short_lines_do_not_shrink_the_ring_below_a_screenful_of_bytes() -> None:
    ring = Ring()
    ring.append(b"\n" * 60_000)
    ring.append(b"\n" * 60_000)
    assert ring.start == 0
    assert ring.end < RING_BYTES_KEPT


def test_a_position_that_has_left_the_ring_is_an_error() -> None:
    ring = Ring(bytes_max=20_000)
    for _ in range(10):
        ring.append(b"x" * 16_384)
    with pytest.raises(LookupError):
        ring.read(0, 1)


def test_modes_of_evicted_output_are_remembered_even_across_chunks() -> None:
    ring = Ring(bytes_max=20_000)
    ring.append(b"x" * 16_380 + b"\x1b[?1")
    ring.append(b"049;2004h\x1b[?25l\x1b[?7l\x1b[?7h" + b"y" * 16_384)
    for _ in range(4):
        ring.append(b"z" * 16_384)
    modes = ring.modes()
    assert b"\x1b[?1049h" in modes
    assert b"\x1b[?2004h" in modes
    assert b"\x1b[?25l" in modes
    assert b"?7" not in modes
