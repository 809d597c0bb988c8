"""What the scripted model is told to do: messages with a unique word and a script in them."""

from __future__ import annotations

import json
import random
from typing import Any

Script = list[dict[str, Any]]
LINES = "ran.txt"


def message(word: str, script: Script) -> str:
    """An operator's message that can be found by its word and plays the script."""
    return f"{word}\n```script\n{json.dumps(script)}\n```"


def talk(chance: random.Random) -> Script:
    """A streamed answer of up to a second."""
    return [{"deltas": chance.randint(3, 40), "every_ms": chance.choice([0, 5, 25])}]


def shell(chance: random.Random, word: str) -> Script:
    """A command that leaves one line behind, however often its worker dies."""
    before, after = chance.choice(["", "sleep 0.3; "]), chance.choice(["", "; sleep 0.4"])
    command = f"{before}echo {word} >> {LINES}{after}"
    arguments = {"command": command, "terminal": chance.random() < 0.3}
    return [{"say": "Running.", "call": "shell", "arguments": arguments}, {"say": "Ran."}]


def files(chance: random.Random, word: str) -> Script:
    """Writes a file and reads it again, both at once with a listing."""
    path = f"notes-{chance.randint(0, 9)}.txt"
    read = [{"call": "read_file", "arguments": {"path": path}}, {"call": "list_files"}]
    return [
        {"call": "write_file", "arguments": {"path": path, "content": word}},
        {"say": "Looking.", "calls": read},
        {"say": "Read."},
    ]


def subagents(chance: random.Random, words: list[str]) -> Script:
    """Subagents at once, each with a command of its own."""
    calls = [
        {"call": "subagent", "arguments": {"name": "helper", "prompt": message(word, inner)}}
        for word in words
        for inner in [shell(chance, word)]
    ]
    return [{"say": "Asking helpers.", "calls": calls}, {"say": "They are done."}]


def pausing() -> Script:
    """The model itself asks for a checkpoint, then goes on."""
    return [
        {"call": "checkpoint", "arguments": {"reason": "look at this"}},
        {"say": "Went on after the checkpoint.", "chunks": 3},
    ]


def long_run(chance: random.Random, word: str) -> Script:
    """Two seconds and more, so that there is something to pause or cancel."""
    return [{"deltas": 60, "every_ms": 30}, *shell(chance, word)]
