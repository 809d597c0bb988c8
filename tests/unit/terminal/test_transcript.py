"""Transcripts: every byte with its time, readable after any crash, played by asciinema."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.terminal.showing import asciicast, raw, read_timed
from holdfast.terminal.transcript import (
    RECORD,
    TranscriptWriter,
    read_chunks,
    read_raw,
    read_records,
)


def write(path: Path, pieces: list[bytes], *, step_s: float = 0.01) -> TranscriptWriter:
    writer = TranscriptWriter(path)
    writer.resize(100, 30, 1000.0)
    for number, piece in enumerate(pieces):
        writer.append(piece, 1000.0 + number * step_s)
    return writer


@pytest.mark.req("K-050", "K-107", "K-146")
def test_the_transcript_equals_what_was_written(tmp_path: Path) -> None:
    pieces = [bytes([number % 256]) * (number * 7 % 900 + 1) for number in range(300)]
    write(tmp_path / "t", pieces).close(b"", 2000.0)
    assert read_raw(tmp_path / "t") == b"".join(pieces)


@settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
)
@given(st.integers(0, 5000), st.integers(0, 255))
def test_a_torn_or_flipped_transcript_is_read_up_to_the_damage(
    tmp_path: Path, cut: int, flip: int
) -> None:
    path = tmp_path / "t"
    path.unlink(missing_ok=True)
    pieces = [b"piece %03d " % number * 5 for number in range(60)]
    write(path, pieces).close(b"", 2000.0)
    whole, damaged = b"".join(pieces), bytearray(path.read_bytes())
    cut %= len(damaged)
    damaged[cut] ^= flip
    path.write_bytes(damaged[: cut + 1])
    found = read_raw(path)
    assert whole.startswith(found)
    assert len(found) >= cut - (len(pieces) + 1) * RECORD.size - len(pieces[0])


@pytest.mark.req("K-050")
def test_chunks_are_about_100_ms_and_keep_positions_and_times(tmp_path: Path) -> None:
    write(tmp_path / "t", [b"0123456789"] * 100).close(b"", 2000.0)
    size, *chunks = read_chunks(tmp_path / "t")
    assert (size.size, size.data) == ((100, 30), b"")
    assert 9 <= len(chunks) <= 11
    assert b"".join(chunk.data for chunk in chunks) == b"0123456789" * 100
    assert [chunk.at_s for chunk in chunks] == sorted(chunk.at_s for chunk in chunks)
    positions = [sum(len(chunk.data) for chunk in chunks[:n]) for n in range(len(chunks))]
    assert [chunk.seq for chunk in chunks] == positions


def test_the_timed_form_gives_back_every_byte(tmp_path: Path) -> None:
    written = bytes(range(256)) * 4
    write(tmp_path / "t", [written]).close(b"", 2000.0)
    lines = [json.loads(line) for line in read_timed(tmp_path / "t").splitlines()]
    assert b"".join(line["data"].encode("latin-1") for line in lines) == written
    assert raw(read_timed(tmp_path / "t")) == written
    assert [(line["cols"], line["rows"]) for line in lines if "cols" in line] == [(100, 30)]


@pytest.mark.req("K-050")
def test_asciicast_has_a_header_times_sizes_and_whole_characters(tmp_path: Path) -> None:
    writer = write(tmp_path / "t", [b"caf\xc3", b"\xa9\r\n"], step_s=0.5)
    writer.resize(120, 40, 1002.0)
    writer.append(b"\xff", 1003.0)
    writer.close(b"", 2000.0)
    timed = read_timed(tmp_path / "t")
    cast = asciicast(timed, cols=1, rows=1, timestamp=1000)
    header, *events = map(json.loads, cast.splitlines())
    assert header == {"version": 2, "width": 100, "height": 30, "timestamp": 1000}
    assert events == [
        [0.0, "o", "caf"],
        [0.5, "o", "é\r\n"],
        [2.0, "r", "120x40"],
        [3.0, "o", "�"],
    ]


def test_an_empty_transcript_is_an_empty_cast(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    timed = read_timed(tmp_path / "t")
    assert json.loads(asciicast(timed, cols=80, rows=24, timestamp=0))["width"] == 80
    assert list(read_chunks(tmp_path / "t")) == []


def test_beyond_the_limit_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    writer = TranscriptWriter(tmp_path / "t", bytes_max=1000)
    whole = b"".join(b"%09d\n" % number for number in range(500))
    for start in range(0, len(whole), 100):
        writer.append(whole[start : start + 100], 1.0)
    writer.close(whole[-500:], 2.0)
    raw = read_raw(tmp_path / "t")
    assert whole.startswith(raw[:-500])
    assert raw.endswith(whole[-500:])
    last = list(read_records(tmp_path / "t"))[-1]
    assert last.seq + len(last.data) == len(whole)


def test_reading_can_start_at_any_position(tmp_path: Path) -> None:
    writer = TranscriptWriter(tmp_path / "t")
    for number in range(40):
        writer.append(bytes([number]) * 50_000, 1.0)
    seq, offset = writer.offset_of(1_234_567)
    assert 0 < seq <= 1_234_567
    first = next(read_records(tmp_path / "t", seq=seq, offset=offset))
    assert first.data[0] == seq // 50_000
    writer.close(b"", 2.0)


def test_a_full_disk_is_a_gap_and_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TranscriptWriter(tmp_path / "t")
    writer.append(b"before", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_write", _no_space)
        writer.append(b"lost", 1.0)
    writer.close(b"forelost", 2.0)
    assert read_raw(tmp_path / "t") == b"beforelost"


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_transcript_that_was_never_begun_is_empty(tmp_path: Path) -> None:
    missing = tmp_path / "transcript"
    assert read_raw(missing) == b""
    assert read_timed(missing) == b""
