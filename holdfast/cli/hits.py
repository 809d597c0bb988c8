"""What a search found, as people read it: the match stands out, with colours or without."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.cli.output import ago, clean


def print_hits(answer: dict[str, Any]) -> None:
    """Each hit with its session; then what the reader should know about the whole."""
    from rich.console import Console
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    # In a file or a pipe a line stays one line, with the words as they were said.
    console = Console(highlight=False, soft_wrap=not is_terminal)
    has_colours = console.color_system is not None and not console.no_color
    marks = (">>>", "<<<") if is_terminal and not has_colours else ("", "")
    for hit in answer["items"]:
        place = [hit["session_id"], hit["role"], ago(hit["timestamp"]), hit.get("title") or ""]
        console.print(Text(clean("  ".join(place).rstrip()), "dim"))
        console.print(_marked(hit["snippet"], marks))
    for note in notes(answer):
        console.print(Text(note, "dim"))


def notes(answer: dict[str, Any]) -> list[str]:
    """What the hits alone do not say."""
    said = [] if answer["items"] else ["nothing found"]
    if answer["items"] and answer.get("matched") == "substrings":
        said.append("no such word; found inside words")
    if answer.get("next_cursor") is not None:
        said.append("there is more: --limit")
    if not answer.get("complete", True):
        behind = (answer.get("index") or {}).get("behind", "some")
        said.append(f"the index is being built: {behind} messages were not searched")
    return said


def _marked(snippet: str, marks: tuple[str, str]) -> Any:
    from rich.text import Text

    line = Text("  ")
    for number, piece in enumerate(clean(snippet).replace("\n", " ").split(">>>")):
        match, closed, rest = piece.partition("<<<")
        if number and closed:
            line.append(match.join(marks), "bold yellow")
        else:
            line.append(match)
        line.append(rest)
    return line
