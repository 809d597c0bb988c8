"""One log file per part, rotated by copying so that the writer never has to reopen it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 10 * 1024 * 1024
OLD_LOGS_MAX = 3
TAIL_BYTES_MAX = 64 * 1024


def open_for_append(path: Path) -> int:
    """A descriptor for a part's stdout and stderr; appending survives truncation by `rotate`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def rotate(path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Move a full log aside; lines written during the copy itself may be lost."""
    if not path.exists() or path.stat().st_size < bytes_max:
        return False
    for number in range(OLD_LOGS_MAX - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    copy = path.with_name(f"{path.name}.1")
    shutil.copyfile(path, copy)
    copy.chmod(0o600)
    os.truncate(path, 0)
    return True


def size(path: Path) -> int:
    """How many bytes the log holds now; the mark for `since`."""
    return path.stat().st_size if path.exists() else 0


def since(path: Path, mark: int, *, lines_max: int) -> list[str]:
    """The last lines written after `mark`."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(mark if mark <= end else 0, end - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[-lines_max:]
