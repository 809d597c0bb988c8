"""The keyboard of an attached terminal: whole lines, or every byte, always with a way out."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DETACH = b"\x1d"  # Ctrl-]
READ_BYTES_MAX = 65_536
LOOK_S = 0.2


@contextmanager
def line_mode() -> Iterator[None]:
    """Editing by the kernel as usual, but Ctrl-] ends the line at once so that it can detach."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[6][termios.VEOL] = DETACH
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def raw_mode() -> Iterator[None]:
    """Every byte goes to the other side, also Ctrl-C."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead is kept
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def lines(over: Callable[[], bool]) -> Iterator[str]:
    """What is typed, line by line, until Ctrl-D, Ctrl-], the end of the input, or `over`."""
    rest = b""
    for data in chunks(over):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def chunks(over: Callable[[], bool]) -> Iterator[bytes]:
    """What is typed, as it comes, until Ctrl-], the end of the input, or `over`."""
    keyboard = sys.stdin.fileno()
    while not over():
        if not select.select([keyboard], [], [], LOOK_S)[0]:
            continue
        data = os.read(keyboard, READ_BYTES_MAX)
        text, detached, _ = data.partition(DETACH)
        if text:
            yield text
        if detached or not data:
            return
