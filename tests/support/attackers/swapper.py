"""An attacker: exchanges two names at once, again and again; run it with `python -m`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_HERE, _EXCHANGE = -100, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def exchange(one: str, other: str) -> None:
    """Both names keep existing: there is no moment at which one of them is missing."""
    if _LIBC.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one)


@contextlib.contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """A process exchanges the two meanwhile; at the end they are as they were before."""
    command = [sys.executable, "-m", "tests.support.attackers.swapper", str(one), str(other)]
    before = one.lstat().st_ino
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"swapping\n"
        try:
            yield
        finally:
            process.kill()
            process.wait()
            with contextlib.suppress(FileNotFoundError):
                if one.lstat().st_ino != before:
                    exchange(str(one), str(other))


def main(one: str, other: str) -> None:
    """Until killed, or until the test that started us is gone."""
    exchange(one, other)
    sys.stdout.write("swapping\n")
    sys.stdout.flush()
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(1000):
            # What is attacked may remove one of the two for a while.
            with contextlib.suppress(FileNotFoundError):
                exchange(one, other)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
