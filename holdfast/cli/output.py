"""What commands print: JSON for scripts, tables and plain words for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
SessionName = Annotated[
    str, typer.Argument(help="A session: its id, a unique prefix of it, an alias or a title.")
]


class Styled(str):
    """A cell of a table in a colour."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        """The text, with the style of rich."""
        made = super().__new__(cls, text)
        made.style = style
        return made


def emit(value: Any, *, as_json: bool, text: str) -> None:
    """The value as JSON, or the words for people."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False) if as_json else text)


def emit_shown(value: Any, *, as_json: bool, show: Callable[[Any], None]) -> None:
    """The value as JSON, or what `show` prints of it: for what is more than one text or table."""
    if as_json:
        emit(value, as_json=True, text="")
    else:
        show(value)


def emit_table(
    values: Sequence[Any], *, as_json: bool, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """The values as JSON, or the rows as a table that fits the terminal."""
    emit_shown(list(values), as_json=as_json, show=lambda _: print_table(columns, rows))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for people that fits the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        # The first column is what one copies into the next command: never broken in two.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        # Text, not markup: titles and messages are other people's words.
        table.add_row(*[Text(clean(cell), style=getattr(cell, "style", "")) for cell in row])
    Console(soft_wrap=False).print(table)


def clean(text: str) -> str:
    """The text without control characters, so that no message can drive the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


def ago(milliseconds: int | None) -> str:
    """How long ago, in the largest unit that fits."""
    if not milliseconds:
        return "-"
    seconds = max(0, int(time.time() - milliseconds / 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def moment(milliseconds: int | None) -> str:
    """When it was, by the clock of this machine."""
    if milliseconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def size(number: float | None) -> str:
    """A number of bytes in the largest unit that fits."""
    if number is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def dollars(cost: float | None) -> str:
    """A cost, or a dash where nobody knows it."""
    return "-" if cost is None else f"${cost:.4f}"
