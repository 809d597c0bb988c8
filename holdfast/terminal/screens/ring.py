"""The last output of one process in memory: bytes by position, bounded in bytes and in lines."""

import re
from collections import deque

from holdfast.domain import scrollback

RING_BYTES_MAX = 4 * 1024 * 1024
# Where more than 10,000 lines are wanted, the ring has room for lines of this length.
RING_BYTES_A_LINE = 400
# Full-screen programs write few newlines; below this size lines do not evict anything.
RING_BYTES_KEPT = 256 * 1024
CHUNK_BYTES = 16 * 1024

MODES_TRACKED = frozenset(
    (1, 5, 6, 7, 9, 12, 25, 45, 47, 66, 69, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015)
) | {1047, 1049, 2004, 2026}
MODE_CHANGE = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
MODES_ON_AT_START = frozenset((7, 25))


class Ring:
    """Positions count bytes since the start; of what is older than `start` only modes are kept."""

    def __init__(
        self,
        *,
        start: int = 0,
        bytes_max: int | None = None,
        lines_max: int = scrollback.LINES_DEFAULT,
    ) -> None:
        self.start = start
        self.end = start
        self.lines_total = 0
        self._bytes_max = bytes_max or max(RING_BYTES_MAX, lines_max * RING_BYTES_A_LINE)
        self.lines_max = lines_max
        self._chunks: deque[tuple[int, bytes, int]] = deque()
        self._open = bytearray()
        self._lines = 0
        self._modes: dict[int, bool] = {}
        self._seam = b""

    def append(self, data: bytes) -> None:
        """Add output at the end, letting go of the oldest."""
        newlines = data.count(b"\n")
        self.end += len(data)
        self.lines_total += newlines
        self._lines += newlines
        self._open += data
        if len(self._open) >= CHUNK_BYTES:
            self._seal()
        while self._over() and self._chunks:
            self._evict()

    def read(self, seq: int, limit: int) -> bytes:
        """Up to `limit` bytes from position `seq`, which must not be older than `start`."""
        if seq < self.start:
            raise LookupError(f"position {seq} has left the ring")
        parts: list[bytes] = []
        wanted = limit
        for first, data, _ in self._chunks_from(seq):
            part = data[max(0, seq - first) :][:wanted]
            parts.append(part)
            wanted -= len(part)
            if wanted <= 0:
                break
        return b"".join(parts)

    @property
    def whole(self) -> bool:
        """Whether nothing was evicted yet, so that a replay of the ring is a replay of it all."""
        return self.start == 0

    def modes(self) -> bytes:
        """The terminal modes that the evicted output had set, as bytes for a fresh terminal."""
        changed = [
            (mode, on) for mode, on in self._modes.items() if on != (mode in MODES_ON_AT_START)
        ]
        return b"".join(b"\x1b[?%d%c" % (mode, b"h" if on else b"l") for mode, on in changed)

    def _chunks_from(self, seq: int) -> list[tuple[int, bytes, int]]:
        # Readers are mostly near the end, so the search starts there.
        found: deque[tuple[int, bytes, int]] = deque()
        if self._open:
            found.append((self.end - len(self._open), bytes(self._open), 0))
        if not found or seq < found[0][0]:
            for chunk in reversed(self._chunks):
                found.appendleft(chunk)
                if chunk[0] <= seq:
                    break
        return list(found)

    def _seal(self) -> None:
        data = bytes(self._open)
        self._chunks.append((self.end - len(data), data, data.count(b"\n")))
        self._open.clear()

    def _over(self) -> bool:
        size = self.end - self.start
        too_many_lines = self._lines > self.lines_max and size > RING_BYTES_KEPT
        return size > self._bytes_max or too_many_lines

    def _evict(self) -> None:
        first, data, newlines = self._chunks.popleft()
        self.start = first + len(data)
        self._lines -= newlines
        # A sequence may lie across two chunks, so the search overlaps by a few bytes.
        for numbers, switch in MODE_CHANGE.findall(self._seam + data):
            for number in numbers.split(b";"):
                if number.isdigit() and int(number) in MODES_TRACKED:
                    self._modes[int(number)] = switch == b"h"
        self._seam = data[-64:]
