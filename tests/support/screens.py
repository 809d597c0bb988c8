"""Looking at terminals in tests: an emulator of our own, and tmux as a second opinion."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from terminal.client import Attachment, Closed, Output, Snapshot, ViewerEvent
from terminal.serialise import new_terminal


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
            self.take(await asyncio.wait_for(anext(attachment), 30))

    async def until_closed(self, attachment: Attachment, timeout_s: float = 30) -> None:
        """Watch to the end."""
        while not (self.events and isinstance(self.events[-1], Closed)):
            self.take(await asyncio.wait_for(anext(attachment), timeout_s))


def drawn(data: bytes, cols: int = 80, rows: int = 24) -> Any:
    """An emulator that saw all of these bytes."""
    terminal = new_terminal(cols, rows)
    terminal.feed(data)
    return terminal


async def tmux_capture(data: bytes, cols: int = 80, rows: int = 24) -> str:
    """What tmux shows, with colours, for a program that wrote these bytes."""
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
        return await _settled(*tmux, "capture-pane", "-p", "-e")
    finally:
        await _run(*tmux, "kill-server")
        shutil.rmtree(folder, ignore_errors=True)


async def _settled(*command: str) -> str:
    """The output of a command once it is the same twice in a row."""
    before = ""
    for _ in range(200):
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
