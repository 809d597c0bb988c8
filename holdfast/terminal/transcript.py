"""The whole output of one process on disk: records with times and checksums, appended as it comes.

A record is `u32 length | u8 kind | f64 time | u32 crc32 | bytes`. Kinds: `o` output, `r` a size as
JSON, `m` bytes omitted as JSON. A crash costs at most the record that was being written; readers
stop at the first one that is not whole.
"""

import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

logger = logging.getLogger(__name__)

RECORD = struct.Struct(">IBdI")
RECORD_BYTES_MAX = 1024 * 1024
TRANSCRIPT_BYTES_MAX = 256 * 1024 * 1024
INDEX_STEP_BYTES = 256 * 1024
CHUNK_SECONDS = 0.1
CHUNK_BYTES_MAX = 256 * 1024
OUTPUT, SIZE, OMITTED = b"orm"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a transcript; `seq` is the output position where it begins."""

    kind: int
    time: float
    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output of about 100 ms, `at_s` seconds after the start, from position `seq`; or a new size.

    The first size of a terminal is a chunk too, so that whoever plays it knows where it began.
    """

    at_s: float
    seq: int
    data: bytes
    size: tuple[int, int] | None = None


class TranscriptWriter:
    """Appends to one transcript; what exceeds the limit is counted, and only its end is kept."""

    def __init__(self, path: Path, *, bytes_max: int = TRANSCRIPT_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._offset = 0
        self._seq = 0
        self._omitted = 0
        self._index: list[tuple[int, int]] = [(0, 0)]

    def append(self, data: bytes, at: float) -> None:
        """Record output that arrived at time `at` (seconds since the epoch)."""
        if self._omitted or self._offset + len(data) > self._bytes_max:
            self._omitted += len(data)
            return
        if self._seq - self._index[-1][0] >= INDEX_STEP_BYTES:
            self._index.append((self._seq, self._offset))
        try:
            self._write(OUTPUT, data, at)
        except OSError:
            # A full disk must not stop the terminals; the gap is recorded like that of the limit.
            self._omitted += len(data)
            return
        self._seq += len(data)

    def resize(self, cols: int, rows: int, at: float) -> None:
        """Record that the terminal has this size from here on."""
        self._write(SIZE, json.dumps([cols, rows]).encode(), at)

    def close(self, tail: bytes, at: float) -> None:
        """Finish; `tail` is the end of the output, written if the middle had to be omitted."""
        try:
            if self._omitted:
                self._write_tail(tail[-self._omitted :], at)
            os.fdatasync(self._file)
        except OSError:
            logger.exception("the end of the transcript %s is not on disk", self.path)
        finally:
            os.close(self._file)

    def offset_of(self, seq: int) -> tuple[int, int]:
        """The position and file offset of a record at or before `seq`, to read on from there."""
        low = [entry for entry in self._index if entry[0] <= seq]
        return low[-1]

    def _write_tail(self, tail: bytes, at: float) -> None:
        self._write(OMITTED, json.dumps(self._omitted - len(tail)).encode(), at)
        for start in range(0, len(tail), RECORD_BYTES_MAX):
            self._write(OUTPUT, tail[start : start + RECORD_BYTES_MAX], at)

    def _write(self, kind: int, data: bytes, at: float) -> None:
        record = RECORD.pack(len(data), kind, at, zlib.crc32(data)) + data
        os.write(self._file, record)
        self._offset += len(record)


def read_records(path: Path, *, seq: int = 0, offset: int = 0) -> Iterator[Record]:
    """The whole records of a transcript in order, from a known position and offset.

    A host that died right after it took a key has left none: then nothing was shown.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        while (record := _read_record(file, seq)) is not None:
            yield record
            if record.kind == OUTPUT:
                seq += len(record.data)
            elif record.kind == OMITTED:
                seq += int(json.loads(record.data))


def read_raw(path: Path) -> bytes:
    """All output, byte for byte (less what the limit omitted)."""
    return b"".join(record.data for record in read_records(path) if record.kind == OUTPUT)


def read_chunks(path: Path) -> Iterator[Chunk]:
    """The output in pieces of about 100 ms, and the sizes, each with the time since the start."""
    began: float | None = None
    first: Record | None = None
    pending = bytearray()
    for record in read_records(path):
        began = record.time if began is None else began
        late = first is not None and record.time - first.time >= CHUNK_SECONDS
        if first is not None and (late or record.kind == SIZE or len(pending) >= CHUNK_BYTES_MAX):
            yield Chunk(first.time - began, first.seq, bytes(pending))
            first, pending = None, bytearray()
        if record.kind == SIZE:
            cols, rows = json.loads(record.data)
            yield Chunk(record.time - began, record.seq, b"", (cols, rows))
        elif record.kind == OUTPUT:
            first = first or record
            pending += record.data
    if first is not None and began is not None:
        yield Chunk(first.time - began, first.seq, bytes(pending))


def _read_record(file: BinaryIO, seq: int) -> Record | None:
    header = file.read(RECORD.size)
    if len(header) < RECORD.size:
        return None
    length, kind, at, checksum = RECORD.unpack(header)
    if length > RECORD_BYTES_MAX:
        return None
    data = file.read(length)
    if len(data) < length or zlib.crc32(data) != checksum:
        return None
    return Record(kind, at, seq, data)
