"""Which blob holds the bytes of a file: known again without reading it while nothing changed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

# A file changed within the clock's step of its status may change again unseen.
SETTLED_NS = 100_000_000
Row = tuple[str, list[int]]


class BlobCache:
    """Paths with what their status was when they were read, and the blob of what was read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = _loaded(file)
        self._now: dict[str, Row] = {}

    def blob(self, path: str, found: os.stat_result) -> str | None:
        """The blob, if the file is the one that was read then."""
        row = self._before.get(path)
        if row is None or row[1] != _marks(found):
            return None
        self._now[path] = row
        return row[0]

    def remember(self, path: str, found: os.stat_result, blob: str) -> None:
        """The file with this status was read as this blob, unless it is too young to be sure."""
        if time.time_ns() - max(found.st_ctime_ns, found.st_mtime_ns) > SETTLED_NS:
            self._now[path] = (blob, _marks(found))

    def clear(self) -> None:
        """Know nothing."""
        self._before, self._now = {}, {}

    def store(self) -> None:
        """Keep what this snapshot knew, and nothing else."""
        if self._now == self._before:
            return
        draft = self._file.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(self._now))
        draft.replace(self._file)


def _marks(found: os.stat_result) -> list[int]:
    return [
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    ]


def _loaded(file: Path) -> dict[str, Row]:
    try:
        return {path: (row[0], row[1]) for path, row in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError, IndexError, TypeError, KeyError):
        return {}
