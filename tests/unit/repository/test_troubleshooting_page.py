"""What the page about troubles quotes is what Holdfast says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.sources import parse

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
FOLDERS = ("api", "activities", "holdfast", "worker", "workflows")
FIELD = "\N{OBJECT REPLACEMENT CHARACTER}"


def quotes() -> list[str]:
    """What stands in backticks in the first column: the words that a person sees."""
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")]
    return [quote for cell in rows for quote in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Every text in the source, with a mark for what is filled in."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [text for path in paths for text in _texts(path)]


def _texts(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else FIELD for part in node.values
            )


def test_there_is_something_to_look_up() -> None:
    assert len(quotes()) > 20


@pytest.mark.parametrize("quote", quotes())
def test_what_is_quoted_is_said(said: list[str], quote: str) -> None:
    # What stands behind a colon may be a text of its own.
    halves = quote.split(": ")
    assert is_said(quote, said) or all(is_said(half, said) for half in halves)


def is_said(quote: str, said: list[str]) -> bool:
    """Whether a text has these words; dots and numbers stand for what is filled in."""
    fixed = [re.escape(piece) for piece in re.split(r"…|\d[\d.]*", quote)]
    assert any(len(piece) > 4 for piece in fixed)
    wanted = re.compile(".{0,80}".join(fixed), re.DOTALL)
    return any(wanted.search(text) for text in said)
