"""What is kept of a terminal: whole lines of JSON within the limit, the middle left out first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.domain.transcript import LOST, TEXT_CHARS_MAX
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import HostLost, UnknownProcess
from holdfast.terminal.showing import Showing, asciicast, closing
from holdfast.terminal.transcript import Chunk


def showing(pieces: list[bytes], *, bytes_max: int = 1_000_000) -> Showing:
    shown, seq = Showing(bytes_max), 0
    for number, piece in enumerate(pieces):
        shown.add(Chunk(number / 10, seq, piece))
        seq += len(piece)
    return shown


def lines(shown: Showing) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown.timed().splitlines()]


@pytest.mark.req("K-050")
@pytest.mark.parametrize("bytes_max", [400, 999, 2000, 10_000])
def test_beyond_the_limit_whole_lines_of_the_middle_go(bytes_max: int) -> None:
    pieces = [b"%05d" % number for number in range(200)]
    shown = showing(pieces, bytes_max=bytes_max)
    kept = lines(shown)  # each of them is JSON
    assert len(shown.timed()) <= bytes_max + 100  # and the line that tells of the gap
    data = [line["data"].encode() for line in kept if line["data"]]
    gaps = [line for line in kept if "omitted" in line]
    assert len(gaps) == (1 if len(data) < 200 else 0)
    assert sum(len(piece) for piece in data) + sum(gap["omitted"] for gap in gaps) == 1000
    before = gaps[0]["seq"] // 5 if gaps else 200
    assert data == pieces[:before] + pieces[200 - (len(data) - before) :]
    assert [line["seq"] for line in kept] == sorted(line["seq"] for line in kept)


def test_a_size_that_fell_into_the_gap_is_told_where_it_ends() -> None:
    shown = showing([b"%05d" % number for number in range(100)], bytes_max=2000)
    shown.add(Chunk(10.0, 500, b"", (100, 30)))
    for number in range(100):
        shown.add(Chunk(11.0, 500 + 5 * number, b"%05d" % number))
    [gap] = [line for line in lines(shown) if "omitted" in line]
    assert (gap["cols"], gap["rows"]) == (100, 30)
    cast = asciicast(shown.timed(), cols=80, rows=24, timestamp=0).decode()
    assert '"r", "100x30"' in cast


def test_within_the_limit_nothing_is_missing() -> None:
    raw = bytes(range(256))
    kept = lines(showing([raw] * 9))
    assert b"".join(line["data"].encode("latin-1") for line in kept) == raw * 9


def test_the_text_is_cut_and_characters_may_lie_across_chunks() -> None:
    assert showing([b"caf\xc3", b"\xa9"]).text == "café"
    assert len(showing([b"x" * 150_000] * 3).text) == TEXT_CHARS_MAX


@pytest.mark.parametrize(
    ("pieces", "count"),
    [([], 0), ([b"a"], 1), ([b"a\n"], 1), ([b"a\nb"], 2), ([b"a", b"b\n", b"\n"], 2)],
)
def test_lines_are_counted_as_a_reader_would(pieces: list[bytes], count: int) -> None:
    assert showing(pieces).line_count == count


class Host(TerminalClient):
    """A host that answers with trouble."""

    def __init__(self, trouble: Exception) -> None:
        self._trouble = trouble

    async def wait(self, key: str) -> Any:
        raise self._trouble


async def test_a_terminal_that_a_new_host_does_not_know_is_lost() -> None:
    assert await closing(Host(UnknownProcess("never heard of it")), "key") is LOST


async def test_a_host_that_is_away_is_no_reason_to_give_a_terminal_up() -> None:
    with pytest.raises(HostLost):
        await closing(Host(HostLost("gone")), "key")
