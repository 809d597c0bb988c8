"""What the clients of a fleet tell the scripted model, beyond what every self-test does."""

from __future__ import annotations

import random

from holdfast.selftest.scripts import LINES, Script, shell

__all__ = ["long_command", "much_output", "shell", "terminal_command"]

# The last is more than a result holds, so that its whole is a blob.
LINES_PRINTED = (5, 300, 300, 6000)
TERMINAL_LINES_MAX = 300
TERMINAL_LINES = 200


def long_command(chance: random.Random, word: str) -> Script:
    """A command of some seconds; its line is written in the middle of it."""
    before, after = chance.uniform(0.2, 4.0), chance.uniform(0.2, 4.0)
    command = f"sleep {before:.1f}; echo {word} >> {LINES}; sleep {after:.1f}"
    arguments = {"command": command, "terminal": chance.random() < 0.3}
    return [{"say": "Long.", "call": "shell", "arguments": arguments}, {"say": "Was long."}]


def much_output(chance: random.Random, word: str) -> tuple[int, Script]:
    """How many numbered lines a command prints, and the script; it rests in the middle."""
    count = chance.choice(LINES_PRINTED)
    rest = chance.uniform(0.0, 3.0)
    half = count // 2
    command = (
        f"seq -f '{word}-%.0f' 1 {half}; sleep {rest:.1f}; seq -f '{word}-%.0f' {half + 1} {count};"
        f" echo {word} >> {LINES}"
    )
    terminal = count <= TERMINAL_LINES_MAX and chance.random() < 0.5
    arguments = {"command": command, "terminal": terminal}
    return count, [{"say": "Much.", "call": "shell", "arguments": arguments}, {"say": "Printed."}]


def terminal_command(word: str) -> str:
    """What an operator's own terminal shows, until it is closed."""
    return f"seq -f '{word}-%.0f' 1 {TERMINAL_LINES}; sleep 600"
