"""A todo list as Markdown and back: `[ ]` pending, `[/]` in progress, `[x]` done, `[-]` dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.domain.errors import ValidationFailed

BOXES = {"pending": " ", "in_progress": "/", "done": "x", "abandoned": "-"}
STATUSES = {box: status for status, box in BOXES.items()} | {"X": "done"}
MARKDOWN_CHARS_MAX = 400_000
_TASK = re.compile(r"[-*] \[(.)\] +(\S.*)")
_NOTE = re.compile(r"\s+(?:[-*>] ?)?(\S.*)")


@dataclass
class Task:
    """One task of a list, with its notes."""

    text: str
    status: str = "pending"
    notes: list[str] = field(default_factory=list)


def render(tasks: Iterable[Task]) -> str:
    """The list as Markdown; notes are indented below their task."""
    lines: list[str] = []
    for task in tasks:
        lines.append(f"- [{BOXES[task.status]}] {task.text}")
        lines += [f"  - {note}" for note in task.notes]
    return "".join(f"{line}\n" for line in lines)


def parse(markdown: str) -> list[Task]:
    """The tasks of a Markdown list; headings and blank lines say nothing, others are errors."""
    if len(markdown) > MARKDOWN_CHARS_MAX:
        raise ValidationFailed(f"a todo list has at most {MARKDOWN_CHARS_MAX} characters")
    tasks: list[Task] = []
    for number, line in enumerate(markdown.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        task, note = _TASK.fullmatch(line.rstrip()), _NOTE.fullmatch(line.rstrip())
        if task is not None and task[1] in STATUSES:
            tasks.append(Task(text=task[2], status=STATUSES[task[1]]))
        elif note is not None and tasks:
            tasks[-1].notes.append(note[1])
        else:
            raise ValidationFailed(
                f"line {number} is no task; write `- [ ] text`, with [ ], [/], [x] or [-]"
            )
    return tasks
