"""What the supervisor says: whole lines, at once, and no error when nobody reads them."""

from __future__ import annotations

import contextlib
import os


def say(line: str) -> None:
    """One line on standard output."""
    with contextlib.suppress(OSError):
        os.write(1, (line + "\n").encode("utf-8", "replace"))


def complain(line: str) -> None:
    """One line on standard error."""
    with contextlib.suppress(OSError):
        os.write(2, (line + "\n").encode("utf-8", "replace"))
