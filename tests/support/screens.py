"""Looking at terminals in tests: an emulator of our own, and tmux as a second opinion."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pyghostty import ffi, lib
from pyghostty.core import check

from holdfast.terminal.client import Attachment, Closed, Output, Snapshot, ViewerEvent
from holdfast.terminal.screens.serialise import new_terminal


class Seen:
    """What a viewer of an attachment sees: an emulator fed with what it yields."""

    def __init__(self) -> None:
        self.events: list[ViewerEvent] = []
        self.terminal: Any = None

    def take(self, event: ViewerEvent) -> None:
        """Draw one event, as the page in the browser would."""
        self.events.append(event)
        if isinstance(event, Snapshot):
            self.terminal = new_terminal(event.cols, event.rows)
            self.terminal.feed(event.data)
        elif isinstance(event, Output):
            self.terminal = self.terminal or new_terminal(80, 24)
            self.terminal.feed(event.data)

    async def until_text(self, attachment: Attachment, text: str) -> None:
        """Watch until the screen shows a text."""
        while self.terminal is None or text not in self.terminal.text():
            self.take(await asyncio.wait_for(anext(attachment), 120))

    async def until_closed(self, attachment: Attachment, timeout_s: float = 120) -> None:
        """Watch to the end."""
        while not (self.events and isinstance(self.events[-1], Closed)):
            self.take(await asyncio.wait_for(anext(attachment), timeout_s))


def drawn(data: bytes, cols: int = 80, rows: int = 24) -> Any:
    """An emulator that saw all of these bytes."""
    terminal = new_terminal(cols, rows)
    terminal.feed(data)
    return terminal


async def tmux_cells(data: bytes, cols: int = 80, rows: int = 24) -> list[Any]:
    """The cells that tmux shows for a program that wrote these bytes."""
    folder = Path(tempfile.mkdtemp(prefix="hftmux-"))
    (folder / "bytes").write_bytes(data)
    tmux = ("tmux", "-S", str(folder / "socket"), "-f", "/dev/null")
    show = f"stty raw -echo; cat {folder}/bytes; touch {folder}/done; sleep 60"
    size = ("-x", str(cols), "-y", str(rows))
    try:
        off = ("set", "-g", "status", "off", ";")
        await _run(*tmux, *off, "new-session", "-d", *size, show)
        for _ in range(3000):
            if (folder / "done").exists():
                break
            await asyncio.sleep(0.01)
        shown = await _settled(*tmux, "capture-pane", "-p", "-e")
        return cells(drawn(shown.rstrip("\n").replace("\n", "\x1b[0m\r\n").encode(), cols, rows))
    finally:
        await _run(*tmux, "kill-server")
        shutil.rmtree(folder, ignore_errors=True)


def cells(terminal: Any) -> list[Any]:
    """Each cell as the eye sees it: a blank has a background, but neither colour nor weight."""
    cols, rows = terminal.size
    return [_cell(terminal, column, row) for row in range(rows) for column in range(cols)]


def _cell(terminal: Any, column: int, row: int) -> Any:
    cell = ffi.new("GhosttyCell*")
    check(lib.ghostty_grid_ref_cell(terminal.ref(column, row), cell), "cell")

    def read(name: str, kind: str) -> Any:
        value = ffi.new(kind + "*")
        check(lib.ghostty_cell_get(cell[0], getattr(lib, f"GHOSTTY_CELL_DATA_{name}"), value), name)
        return value[0]

    style = terminal.style(column, row)
    tag = read("CONTENT_TAG", "int")
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        return (" ", ("palette", read("COLOR_PALETTE", "uint8_t")), False, 0)
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        colour = read("COLOR_RGB", "GhosttyColorRgb")
        return (" ", ("rgb", (colour.r, colour.g, colour.b)), False, 0)
    character = chr(read("CODEPOINT", "uint32_t") or 32)
    if character == " ":
        return (" ", style["bg"], style["inverse"], style["underline"])
    return (character, tuple(style.items()))


async def _settled(*command: str) -> str:
    """The output of a command once it is the same twice in a row."""
    before = ""
    for _ in range(2400):
        now = await _run(*command)
        if now.strip() and now == before:
            return now
        before = now
        await asyncio.sleep(0.05)
    raise AssertionError("tmux never settled")


async def _run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode()
