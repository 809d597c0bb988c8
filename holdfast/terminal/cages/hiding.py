"""What cages hide at the word of a policy, remembered as files and not as names."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.terminal.errors import CageSpawnFailed

REMEMBERED_MAX = 256


class Hiding:
    """Holds what was hidden open, so that a rename elsewhere cannot bring it to light.

    For the life of a terminal host. A file that was deleted or replaced is forgotten: an editor
    does that with every save.
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def check(self, path: Path) -> None:
        """Remember what is at `path`; CageSpawnFailed when what was there before was moved."""
        held = self._held.get(path)
        if held is not None:
            known = os.fstat(held)
            if _is_at(path, known):
                return
            if known.st_nlink > 0:
                now = Path(f"/proc/self/fd/{held}").readlink()
                raise CageSpawnFailed(
                    f"what `fs.hidden` hides at {path} was moved to {now}; move it back, "
                    "delete it, or restart the terminal host if it may be seen there"
                )
            os.close(self._held.pop(path))
        self._remember(path)

    def close(self) -> None:
        """Let go of all of it."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _remember(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        if len(self._held) >= REMEMBERED_MAX:
            oldest = next(iter(self._held))
            os.close(self._held.pop(oldest))
        self._held[path] = descriptor


def _is_at(path: Path, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), known)
    except OSError:
        return False
