"""Rows of a terminal as bytes, exact to the eye; only the emulator child imports this.

The library's formatter gives cells that were never written the style of the text before them, and
takes rows that only have a background for empty. Such rows are put together here, run by run.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from pyghostty import ffi, lib
from pyghostty.core import check, init_sized

EMPTY = 0
CONTENT_TAG_MASK = 3
CONTENT_MASK = 0xFFFFFF << 2
STYLED_FROM = 1 << 26


def rows_as_bytes(terminal: Any, first: int, end: int) -> bytes:
    """The rows from `first` up to `end`, from the top of the screen; history is negative."""
    above = max(0, -first)
    raw = read_rows(terminal, above)[first + above : end + above]
    top = int(terminal.get("scrollback_rows", "size_t"))
    pieces: list[bytes] = []
    for special, run in itertools.groupby(enumerate(raw), key=lambda row: is_special(row[1])):
        rows = list(run)
        if special:
            pieces += [_row(terminal, top + first + row, cells) for row, cells in rows]
        else:
            pieces.append(_plain(terminal, top + first + rows[0][0], len(rows)))
    return b"\r\n".join(pieces)


def is_special(cells: list[int]) -> bool:
    """Whether the formatter would not get this row right."""
    kinds = set(cells)
    coloured = any(cell & CONTENT_TAG_MASK > 1 for cell in kinds)
    if not coloured and max(kinds, default=0) < STYLED_FROM:
        return False
    written = max((column for column, cell in enumerate(cells) if cell), default=-1)
    has_text = any(cell & CONTENT_TAG_MASK <= 1 and cell & CONTENT_MASK for cell in kinds)
    return EMPTY in cells[: written + 1] or not has_text


def read_rows(terminal: Any, above: int) -> list[list[int]]:
    """The raw cells of the screen's rows, after those of as many rows of history as asked for."""
    state = ffi.new("GhosttyRenderState*")
    rows = ffi.new("GhosttyRenderStateRowIterator*")
    check(lib.ghostty_render_state_new(ffi.NULL, state), "render state")
    try:
        overscan = ffi.new("GhosttyRenderStateOverscan*", {"above": above, "below": 0})
        option = lib.GHOSTTY_RENDER_STATE_OPTION_OVERSCAN
        check(lib.ghostty_render_state_set(state[0], option, overscan), "overscan")
        check(lib.ghostty_render_state_update(state[0], terminal._t[0]), "update")
        check(lib.ghostty_render_state_row_iterator_new(ffi.NULL, rows), "rows")
        iterator = lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR
        check(lib.ghostty_render_state_get(state[0], iterator, rows), "rows")
        return list(_raw_cells(rows))
    finally:
        lib.ghostty_render_state_row_iterator_free(rows[0])
        lib.ghostty_render_state_free(state[0])


def select_area(terminal: Any, start: tuple[int, int], end: tuple[int, int], tag: str) -> Any:
    """The cells from `start` to `end` (column, row), both included."""
    selection = init_sized("GhosttySelection")
    selection.start = terminal.ref(*start, tag)[0]
    selection.end = terminal.ref(*end, tag)[0]
    return selection


def format_area(terminal: Any, selection: Any, *extras: str) -> bytes:
    """The cells of an area as the library writes them, with such extras around them."""
    options = init_sized("GhosttyFormatterTerminalOptions")
    options.emit = lib.GHOSTTY_FORMATTER_FORMAT_VT
    options.selection = selection
    for name in extras:
        target = options.extra if hasattr(options.extra, name) else options.extra.screen
        setattr(target, name, True)
    formatter = ffi.new("GhosttyFormatter*")
    check(
        lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, terminal._t[0], options[0]),
        "formatter",
    )
    try:
        size = ffi.new("size_t*")
        lib.ghostty_formatter_format_buf(formatter[0], ffi.NULL, 0, size)
        buffer = ffi.new("uint8_t[]", max(size[0], 1))
        check(lib.ghostty_formatter_format_buf(formatter[0], buffer, len(buffer), size), "format")
        return bytes(ffi.buffer(buffer, size[0]))
    finally:
        lib.ghostty_formatter_free(formatter[0])


def _raw_cells(rows: Any) -> Iterator[list[int]]:
    view = ffi.new("GhosttyCellsView*")
    what = lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW
    while lib.ghostty_render_state_row_iterator_next(rows[0]):
        check(lib.ghostty_render_state_row_get(rows[0], what, view), "row")
        yield ffi.unpack(view.ptr, view.len)


def _plain(terminal: Any, row: int, count: int) -> bytes:
    area = select_area(terminal, (0, row), (terminal.size[0] - 1, row + count - 1), "screen")
    text = format_area(terminal, area)
    # Empty rows at the end are not in the text.
    return text + b"\r\n" * (count - 1 - text.count(b"\r\n"))


def _row(terminal: Any, row: int, cells: list[int]) -> bytes:
    pieces: list[bytes] = []
    column = 0
    for colour, run in itertools.groupby(cells, key=background):
        width = len(list(run))
        if colour is None:
            area = select_area(terminal, (column, row), (column + width - 1, row), "screen")
            pieces.append(format_area(terminal, area))
        else:
            # Erased cells take the background, and the cursor goes over them.
            pieces.append(b"\x1b[0;%sm\x1b[%dX\x1b[%dC\x1b[0m" % (colour or b"49", width, width))
        column += width
    return b"".join(pieces)


def background(cell: int) -> bytes | None:
    """The SGR parameters of a cell without text, empty for the default; None if it has text."""
    if cell == EMPTY:
        return b""
    if cell & CONTENT_TAG_MASK <= 1:
        return None
    if _of_cell(cell, lib.GHOSTTY_CELL_DATA_CONTENT_TAG, "int") == (
        lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE
    ):
        return b"48;5;%d" % _of_cell(cell, lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, "uint8_t")
    colour = _of_cell(cell, lib.GHOSTTY_CELL_DATA_COLOR_RGB, "GhosttyColorRgb")
    return b"48;2;%d;%d;%d" % (colour.r, colour.g, colour.b)


def _of_cell(cell: int, what: int, kind: str) -> Any:
    value = ffi.new(kind + "*")
    check(lib.ghostty_cell_get(cell, what, value), "cell data")
    return value[0]
