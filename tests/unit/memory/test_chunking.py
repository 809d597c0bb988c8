"""Chunks: whole lines, true numbers, no bigger than asked, overlapping a little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.memory import ChunkSettings
from holdfast.memory.chunking import CHARACTERS_PER_TOKEN, chunks_of

SMALL = ChunkSettings(tokens=32, overlap=8)
LINES = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=300))


@given(lines=LINES)
@pytest.mark.req("O-026")
def test_every_line_is_in_a_chunk_that_knows_it(lines: list[str]) -> None:
    chunks = chunks_of("\n".join(lines), SMALL)
    for number, line in enumerate(lines, start=1):
        around = [one for one in chunks if one.start_line <= number <= one.end_line]
        if line.strip():
            assert around
        if len(line) <= SMALL.tokens * CHARACTERS_PER_TOKEN and line.strip():
            assert any(line in one.text for one in around)


@given(lines=LINES)
def test_a_chunk_is_never_over_its_size_and_holds_the_lines_it_names(lines: list[str]) -> None:
    for chunk in chunks_of("\n".join(lines), SMALL):
        assert 0 < len(chunk.text) <= SMALL.tokens * CHARACTERS_PER_TOKEN
        parts = chunk.text.split("\n")
        assert len(parts) == chunk.end_line - chunk.start_line + 1
        for part, line in zip(parts, lines[chunk.start_line - 1 : chunk.end_line], strict=True):
            assert part in line


@given(line=st.text("abcdefgh ", min_size=200, max_size=2_000))
def test_a_long_line_is_cut_and_nothing_of_it_is_lost(line: str) -> None:
    chunks = chunks_of(line, ChunkSettings(tokens=32, overlap=0))
    assert "".join(one.text for one in chunks).replace(" ", "") == line.replace(" ", "")
    assert {(one.start_line, one.end_line) for one in chunks} <= {(1, 1)}


@pytest.mark.req("O-026")
def test_the_end_of_a_chunk_begins_the_next() -> None:
    lines = [f"line number {number:02}" for number in range(30)]
    first, second, *_ = chunks_of("\n".join(lines), SMALL)
    assert second.start_line <= first.end_line
    shared = first.end_line - second.start_line + 1
    assert len("\n".join(lines[second.start_line - 1 :][:shared])) <= 8 * CHARACTERS_PER_TOKEN


def test_the_end_of_a_long_line_stands_behind_its_overlap_on_one_line() -> None:
    first, second = chunks_of("a" * 128 + "b" * 10, SMALL)
    assert (first.text, second.text) == ("a" * 128, "a" * 32 + "b" * 10)
    assert (second.start_line, second.end_line) == (1, 1)


def test_nothing_overlaps_when_nothing_should() -> None:
    lines = [f"line number {number:02}" for number in range(30)]
    chunks = chunks_of("\n".join(lines), ChunkSettings(tokens=32, overlap=0))
    assert "\n".join(one.text for one in chunks) == "\n".join(lines)


@pytest.mark.parametrize("text", ["", "\n\n", " \t\n \n", "\n" * 2_000])
def test_what_is_blank_makes_no_chunk(text: str) -> None:
    assert chunks_of(text, SMALL) == []


def test_equal_texts_have_equal_hashes() -> None:
    [first], [second] = chunks_of("same", SMALL), chunks_of("same", ChunkSettings())
    assert first.hash == second.hash
