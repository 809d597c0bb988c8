"""Snapshots: a fresh terminal that is fed one looks like the terminal it was taken of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.scrollback import LINES_DEFAULT, LINES_MAX
from holdfast.terminal.protocol import Frame, FrameType
from holdfast.terminal.screens.screend import Emulator, merge_feeds, unfinished, without_lost_lines
from holdfast.terminal.screens.serialise import serialise
from tests.support.screens import cells, drawn

PIECES = st.sampled_from(
    [
        *(b"word ", b"a longer piece of text ", b"\r\n", b"\n", b"\r", b"\t", b"x" * 40),
        *(b"\xe2\x82\xac", b"\xe4\xb8\xad\xe6\x96\x87", b"e\xcc\x81"),
        *(b"\x1b[31m", b"\x1b[1;44m", b"\x1b[7m", b"\x1b[0m", b"\x1b[38;2;1;2;3m", b"\x1b[4:3m"),
        *(b"\x1b[3;10H", b"\x1b[H", b"\x1b[3A", b"\x1b[2B", b"\x1b[4C", b"\x1b[20G"),
        *(b"\x1b[K", b"\x1b[1K", b"\x1b[2J", b"\x1b[J", b"\x1b[2L", b"\x1b[M", b"\x1b[3P"),
        *(b"\x1b[2;4r", b"\x1b[r", b"\x1bM", b"\x1b7", b"\x1b8", b"\x1b[2S", b"\x1b[T"),
        *(b"\x1b[?25l", b"\x1b[?1h", b"\x1b[?2004h", b"\x1b[?1000h", b"\x1b[?1006h"),
        *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?7l", b"\x1b[?7h", b"\x1b]0;title\x07"),
    ]
)


@pytest.mark.req("K-051")
@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(PIECES, max_size=60))
def test_a_snapshot_looks_like_its_terminal(pieces: list[bytes]) -> None:
    original = drawn(b"".join(pieces), 20, 5)
    data, _ = serialise(original, history=LINES_DEFAULT)
    copy = drawn(data, 20, 5)
    assert copy.text() == original.text()
    assert cells(copy) == cells(original)
    assert copy.cursor == original.cursor
    for mode in (1, 7, 25, 1000, 1006, 2004):
        assert copy.mode(mode) == original.mode(mode)
    assert copy.get("active_screen", "int") == original.get("active_screen", "int")
    if original.mode(7):
        wraps = copy.get("cursor_pending_wrap", "bool")
        assert wraps == original.get("cursor_pending_wrap", "bool")


@pytest.mark.parametrize("erase", [b"\x1b[2S", b"\x1b[44m\x1b[2S", b"\x1b7\x1b[1K\x1b8"])
def test_a_pending_wrap_after_an_erased_cell_is_kept(erase: bytes) -> None:
    original = drawn(b"x" * 40 + erase, 20, 5)
    data, _ = serialise(original, history=LINES_DEFAULT)
    copy = drawn(data, 20, 5)
    assert (copy.cursor, cells(copy)) == (original.cursor, cells(original))
    assert copy.text() == original.text()
    assert copy.get("cursor_pending_wrap", "bool") == original.get("cursor_pending_wrap", "bool")


@pytest.mark.parametrize(
    "stream",
    [
        b"\x1b[44mA\x1b[0m\x1b[5CB",
        b"\x1b[4mA\x1b[0m\x1b[5C\x1b[45m\x1b[K",
        b"\x1b[44m\x1b[2J",
        b"\x1b[48;2;1;2;3m\x1b[3P\r\nplain",
        b"x" * 40 + b"\x1b[1;44m\x1b[r\x1b[K",
    ],
)
def test_gaps_and_bare_backgrounds_are_exact(stream: bytes) -> None:
    original = drawn(stream, 12, 4)
    data, _ = serialise(original, history=LINES_DEFAULT)
    assert cells(drawn(data, 12, 4)) == cells(original)


@pytest.mark.req("K-049")
def test_ten_thousand_lines_of_history_are_in_the_snapshot() -> None:
    original = drawn(b"".join(b"line %d\r\n" % number for number in range(20_000)))
    data, lines = serialise(original, history=LINES_DEFAULT)
    assert lines == 10_023
    shown = drawn(data).contents().splitlines()
    assert shown[0] == f"line {20_000 - 10_000 - 23}"
    assert shown[-1] == "line 19999"
    short, lines = serialise(original, history=0)
    assert lines == 23
    assert drawn(short).text() == original.text()


@pytest.mark.req("K-049")
@pytest.mark.parametrize("kept", [500, LINES_MAX])
def test_the_snapshot_has_as_many_lines_of_history_as_wanted(kept: int) -> None:
    emulator = Emulator(0, 80, 24, kept)
    numbers = range(kept + 5_000)
    for first in numbers[::1000]:
        emulator.feed(b"".join(b"line %d\r\n" % number for number in numbers[first:][:1000]))
    data, lines = emulator.show(history=True)
    assert lines == kept + 23
    assert data.startswith(b"line %d\r\n" % (5_000 - 23))
    assert b"line %d" % numbers[-1] in data


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_snapshot_in_the_middle_of_a_sequence_goes_on_rightly(cut: int) -> None:
    stream = b"ab\x1b[31mred\xe2\x82\xac\x1b]0;title\x07\x1b[2;3Hend"
    emulator = Emulator(0, 20, 5, LINES_DEFAULT)
    emulator.feed(stream[:cut])
    data, _ = emulator.show(history=True)
    assert emulator.seq == min(cut, len(stream))
    resumed = drawn(data + stream[cut:], 20, 5)
    assert cells(resumed) == cells(drawn(stream, 20, 5))
    assert resumed.cursor == drawn(stream, 20, 5).cursor


def test_lines_that_would_scroll_away_at_once_are_not_drawn() -> None:
    flood = b"".join(b"%d\r\n" % number for number in range(50_000))
    short = without_lost_lines(flood, LINES_DEFAULT)
    assert len(short) < len(flood) / 3
    assert flood.endswith(short)
    assert without_lost_lines(b"\x1b[1m" + flood, LINES_DEFAULT) == b"\x1b[1m" + flood
    assert without_lost_lines(b"one\r\ntwo", LINES_DEFAULT) == b"one\r\ntwo"


def test_an_unfinished_sequence_is_found_at_the_end() -> None:
    assert unfinished(b"text\x1b[3") == b"\x1b[3"
    assert unfinished(b"text\xe2\x82") == b"\xe2\x82"
    assert unfinished(b"text") == b""
    assert unfinished(b"") == b""


def test_neighbouring_output_of_one_terminal_is_drawn_at_once() -> None:
    def feed(channel: int, data: bytes) -> Frame:
        return Frame(FrameType.FEED, channel, data)

    show = Frame(FrameType.SHOW, 1, b"")
    frames = [feed(1, b"a"), feed(1, b"b"), feed(2, b"c"), show, feed(1, b"d")]
    assert merge_feeds(frames) == [feed(1, b"ab"), feed(2, b"c"), show, feed(1, b"d")]
