"""What a terminal showed, gathered in one pass and within a limit: timed lines, text, line count.

A timed line is `{"at_ms", "seq", "data"}` with the bytes as Latin-1 text; where the terminal got a
size it has `cols` and `rows` too, and no data. All other forms are made from these lines.

Beyond the limit whole lines of the middle are left out, and one line says how many bytes: the
beginning and the end of a terminal are what people look for, and half a line of JSON is none.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.domain.transcript import LOST, TEXT_CHARS_MAX, Transcript
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import UnknownProcess
from holdfast.terminal.transcript import Chunk, read_chunks

TIMED_BYTES_MAX = 256 * 1024 * 1024
TAIL_SHARE = 4


async def closing(client: TerminalClient, key: str) -> Transcript:
    """How the terminal ended and what it showed; waits for its end.

    A host that knows nothing of it was started after the terminal was lost. One that does not
    answer raises, for it may know yet.
    """
    try:
        ended = await client.wait(key)
        async with transcript_copy(client, key) as path:
            shown = await asyncio.to_thread(read_showing, path)
    except UnknownProcess:
        return LOST
    return Transcript(
        reason=ended.reason.value,
        exit_code=ended.code,
        timed=shown.timed(),
        text=shown.text,
        line_count=shown.line_count,
    )


@asynccontextmanager
async def transcript_copy(client: TerminalClient, key: str) -> AsyncIterator[Path]:
    """A transcript as a file of this machine, whichever machine its host is on."""
    with tempfile.NamedTemporaryFile(prefix="holdfast-transcript-") as copy:
        await client.copy_transcript(key, copy)
        yield Path(copy.name)


def read_showing(path: Path, *, bytes_max: int = TIMED_BYTES_MAX) -> Showing:
    """Everything that a transcript's file holds."""
    shown = Showing(bytes_max)
    for chunk in read_chunks(path):
        shown.add(chunk)
    return shown


def read_timed(path: Path) -> bytes:
    """The chunks as lines of JSON."""
    return read_showing(path).timed()


def raw(timed: bytes) -> bytes:
    """All output, byte for byte (less what the limits omitted)."""
    return b"".join(line["data"].encode("latin-1") for line in _lines(timed))


def asciicast(timed: bytes, *, cols: int, rows: int, timestamp: int) -> bytes:
    """Asciicast v2, which asciinema plays, with every resize; what is not UTF-8 becomes �.

    `cols` and `rows` are for transcripts of old, whose lines do not say where they began.
    """
    width, height = cols, rows
    # A character may lie across two lines, so one decoder goes through them all.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    events: list[str] = []
    for number, line in enumerate(_lines(timed)):
        at_s = line["at_ms"] / 1000
        if "cols" not in line:
            if text := decoder.decode(line["data"].encode("latin-1")):
                events.append(json.dumps([at_s, "o", text]))
        elif number == 0:
            width, height = line["cols"], line["rows"]
        else:
            events.append(json.dumps([at_s, "r", f"{line['cols']}x{line['rows']}"]))
    header = {"version": 2, "width": width, "height": height, "timestamp": timestamp}
    return "\n".join([json.dumps(header), *events]).encode() + b"\n"


class Showing:
    """Takes chunks in order and holds no more than the limit of them."""

    def __init__(self, bytes_max: int) -> None:
        self._tail_max = bytes_max // TAIL_SHARE
        self._head_left = bytes_max - self._tail_max
        self._head: list[bytes] = []
        self._tail: deque[tuple[Chunk, bytes]] = deque()
        self._tail_bytes = 0
        self._omitted_from: Chunk | None = None
        self._omitted = 0
        self._size: tuple[int, int] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._newlines, self._open_line = 0, False
        self.text = ""

    @property
    def line_count(self) -> int:
        """As in `run_pty_transcripts`: a last line without an end counts."""
        return self._newlines + self._open_line

    def add(self, chunk: Chunk) -> None:
        """The next chunk."""
        if chunk.size is not None:
            self._keep(chunk, _line(chunk, "", **_sized(chunk.size)))
            return
        if len(self.text) < TEXT_CHARS_MAX:
            self.text = (self.text + self._decoder.decode(chunk.data))[:TEXT_CHARS_MAX]
        self._newlines += chunk.data.count(b"\n")
        self._open_line = not chunk.data.endswith(b"\n")
        self._keep(chunk, _line(chunk, chunk.data.decode("latin-1")))

    def _keep(self, chunk: Chunk, line: bytes) -> None:
        if not self._tail and len(line) <= self._head_left:
            self._head_left -= len(line)
            self._head.append(line)
            return
        self._tail.append((chunk, line))
        self._tail_bytes += len(line)
        while self._tail_bytes > self._tail_max:
            self._omit(*self._tail.popleft())

    def timed(self) -> bytes:
        """The lines of JSON."""
        gap = []
        if self._omitted_from is not None:
            gap = [_line(self._omitted_from, "", omitted=self._omitted, **_sized(self._size))]
        return b"".join([*self._head, *gap, *(line for _, line in self._tail)])

    def _omit(self, chunk: Chunk, line: bytes) -> None:
        self._omitted_from = self._omitted_from or chunk
        self._omitted += len(chunk.data)
        self._size = chunk.size or self._size
        self._tail_bytes -= len(line)
        # Nothing goes to the beginning any more, or the order would be lost.
        self._head_left = 0


def _lines(timed: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in timed.splitlines())


def _sized(size: tuple[int, int] | None) -> dict[str, int]:
    return {} if size is None else {"cols": size[0], "rows": size[1]}


def _line(chunk: Chunk, data: str, **more: int) -> bytes:
    fields = {"at_ms": round(chunk.at_s * 1000), "seq": chunk.seq, "data": data, **more}
    return json.dumps(fields).encode() + b"\n"
