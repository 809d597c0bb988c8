"""A terminal's whole state as bytes: fed to a freshly reset terminal they make it look the same.

Only the disposable emulator child imports this: the library beneath can crash on hostile input.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from pyghostty import GhosttyError, Terminal, ffi, lib
from pyghostty.core import check

from holdfast.domain import scrollback
from holdfast.terminal.screens.rows import (
    background,
    format_area,
    read_rows,
    rows_as_bytes,
    select_area,
)

# Pages of history are dropped whole, so a few more lines than wanted are asked for.
HISTORY_LINES_SPARE = 600
HISTORY_BYTES_MAX = 64 * 1024 * 1024
# The emulator starts with 1007 on; that alone is no news to the viewer.
MODES_ON_AT_START = frozenset((7, 25, 1007))
# Everything that changes how later bytes are read or keys are sent; 1047-1049 are handled apart.
MODES = (1, 5, 7, 9, 12, 25, 45, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 2004)
ORIGIN_MODE = 6
INSERT_MODE = 4
NEWLINE_MODE = 20
REGION = re.compile(rb"\x1b\[(\d+);\d+r")
LEAVE_ALTERNATE = b"\x1b[?1049l"
ENTER_ALTERNATE = b"\x1b[?1049h"


def new_terminal(cols: int, rows: int, lines: int = scrollback.LINES_DEFAULT) -> Any:
    """An emulator with at least this many lines of history."""
    terminal = Terminal(cols, rows, scrollback=lines + HISTORY_LINES_SPARE)
    option = lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES
    check(
        lib.ghostty_terminal_set(terminal._t[0], option, ffi.new("size_t*", HISTORY_BYTES_MAX)),
        "set scrollback bytes",
    )
    return terminal


def serialise(terminal: Any, *, history: int) -> tuple[bytes, int]:
    """The bytes, and how many lines they show: the screen to its last line of text, and before it
    at most `history` lines.
    """
    if not terminal.get("active_screen", "int"):
        lines = _history_rows(terminal, history)
        return b"".join(_primary(terminal, lines)) + _state(terminal), lines + _used_rows(terminal)
    below, lines = b"", 0
    with contextlib.suppress(GhosttyError), _clone(terminal) as primary:
        primary.feed(LEAVE_ALTERNATE)
        lines = _history_rows(primary, history)
        # Entering the alternate screen saves the cursor, so it must be where the program left it.
        below = b"".join(_primary(primary, lines)) + _cursor(primary)
    shown = b"\x1b[H" + _screen(terminal)
    drawn = below + ENTER_ALTERNATE + b"\x1b[0m" + shown + _state(terminal)
    return drawn, lines + _used_rows(terminal)


def is_ground(terminal: Any) -> bool:
    """Whether the emulator is outside of any sequence or character."""
    return bool(terminal.get("vt_ground", "bool"))


def _used_rows(terminal: Any) -> int:
    return len(terminal.text().rstrip().splitlines())


def _history_rows(terminal: Any, wanted: int) -> int:
    return min(int(terminal.get("scrollback_rows", "size_t")), wanted)


def _primary(terminal: Any, history_lines: int) -> Iterator[bytes]:
    if history_lines:
        yield rows_as_bytes(terminal, -history_lines, 0)
        # As many lines as the screen has push the history off it, and it only.
        yield b"\x1b[0m" + b"\r\n" * terminal.size[1]
    yield b"\x1b[H" + _screen(terminal)


def _screen(terminal: Any) -> bytes:
    return rows_as_bytes(terminal, 0, terminal.size[1]) + b"\x1b[0m"


def _state(terminal: Any) -> bytes:
    """Everything but cells: tab stops, region, modes, cursor, style and charset."""
    return b"".join(
        (
            _extras(terminal, "tabstops", before=True),
            _extras(terminal, "scrolling_region"),
            b"".join(_modes(terminal)),
            _extras(terminal, "keyboard", before=True),
            _cursor(terminal),
            # From here on printing would not do what it says, so the cursor had to come first.
            _extras(terminal, "charsets", "kitty_keyboard", "hyperlink", "protection"),
            b"\x1b[4h" if _mode(terminal, INSERT_MODE, ansi=True) else b"",
        )
    )


def _modes(terminal: Any) -> Iterator[bytes]:
    for mode in MODES:
        on = _mode(terminal, mode)
        if on is not None and on != (mode in MODES_ON_AT_START):
            yield b"\x1b[?%d%c" % (mode, b"h" if on else b"l")
    if _mode(terminal, NEWLINE_MODE, ansi=True):
        yield b"\x1b[20h"
    if _mode(terminal, ORIGIN_MODE):
        yield b"\x1b[?6h"


def _mode(terminal: Any, number: int, *, ansi: bool = False) -> bool | None:
    try:
        return bool(terminal.mode(number, ansi))
    except GhosttyError:
        return None


def _cursor(terminal: Any) -> bytes:
    column, row = terminal.cursor
    line = row + 1
    region = REGION.search(_extras(terminal, "scrolling_region"))
    if region is not None and _mode(terminal, ORIGIN_MODE):
        # With origin mode on, positions count from the region's top.
        line -= int(region[1]) - 1
    parts = [b"\x1b[%d;%dH" % (line, column + 1)]
    if terminal.get("cursor_pending_wrap", "bool") and column and _mode(terminal, 7):
        erased = background(read_rows(terminal, 0)[row][column])
        if erased is None:
            parts = [b"\x1b[%d;%dH" % (line, column), _cells(terminal, column - 1, column, row)]
        else:
            # The formatter prints nothing for an erased cell. A space leaves the wrap pending; it
            # is erased again between saving and restoring the cursor.
            parts = [b"\x1b[%d;%dH\x1b[0;%sm " % (line, column + 1, erased or b"49")]
            parts.append(b"\x1b7\x1b[X\x1b8")
    parts.append(_extras(terminal, "style") or b"\x1b[0m")
    return b"".join(parts)


def _cells(terminal: Any, first: int, last: int, row: int) -> bytes:
    """The cells of one row again, so that printing the last of them leaves the wrap pending."""
    area = select_area(terminal, (max(first, 0), row), (last, row), "active")
    return format_area(terminal, area)


def _extras(terminal: Any, *names: str, before: bool = False) -> bytes:
    """What the formatter adds around the cells for these extras."""
    area = select_area(terminal, (0, 0), (0, 0), "active")
    bare = format_area(terminal, area)
    full = format_area(terminal, area, *names)
    return full[: len(full) - len(bare)] if before else full[len(bare) :]


class _clone(contextlib.AbstractContextManager[Any]):  # noqa: N801 (reads as a verb where used)
    """A copy of a terminal, to look at its other screen without touching the original."""

    def __init__(self, terminal: Any) -> None:
        self._original = terminal
        self._copy: Any = None

    def __enter__(self) -> Any:
        pointer, length = ffi.new("uint8_t**"), ffi.new("size_t*")
        source = self._original._t[0]
        check(lib.ghostty_snapshot_encode_alloc(source, ffi.NULL, pointer, length), "encode")
        decoder = ffi.new("GhosttySnapshotDecoder*")
        self._copy = Terminal.__new__(Terminal)
        self._copy._t = ffi.new("GhosttyTerminal*")
        self._copy._cb_err = None
        try:
            check(
                lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, pointer[0], length[0]),
                "decoder",
            )
            check(lib.ghostty_snapshot_decoder_decode(decoder[0], self._copy._t), "decode")
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
            lib.ghostty_free(ffi.NULL, pointer[0], length[0])
        return self._copy

    def __exit__(self, *_: object) -> None:
        lib.ghostty_terminal_free(self._copy._t[0])
