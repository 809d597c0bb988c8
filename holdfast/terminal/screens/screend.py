"""The disposable screen emulator: a child of the host that reads the same bytes and draws them.

It may crash on hostile output; the host then starts another one and feeds it anew. Nothing else
depends on it.
"""

import os
import socket
import sys
from typing import Any

from pyghostty import Terminal

from holdfast.terminal import protocol
from holdfast.terminal.protocol import Frame, FrameDecoder, FrameType
from holdfast.terminal.records import ROWS_MAX
from holdfast.terminal.screens.serialise import (
    HISTORY_LINES_SPARE,
    is_ground,
    new_terminal,
    serialise,
)

RECEIVE_BYTES = 1024 * 1024
TAIL_BYTES_MAX = 64 * 1024
NICENESS = 10
ESCAPES = (b"\x1b", b"\x0e", b"\x0f", b"\x9b")


class Emulator:
    """One terminal's screen, and the bytes of the sequence it is in the middle of."""

    def __init__(self, seq: int, cols: int, rows: int, lines: int) -> None:
        self.seq = seq
        self.lines = lines
        self.terminal: Any = new_terminal(cols, rows, lines)
        self.answers = bytearray()
        self._tail = b""
        self.terminal.on_reply(self.answers.extend)

    def feed(self, data: bytes) -> None:
        """Draw what follows; lines that would scroll out of the history at once are left out."""
        self.seq += len(data)
        data = without_lost_lines(data, self.lines)
        self.terminal.feed(data)
        self._tail = b"" if is_ground(self.terminal) else (self._tail + data)[-TAIL_BYTES_MAX:]

    def show(self, *, history: bool) -> tuple[bytes, int]:
        """The screen's bytes and lines, with the unfinished sequence that later bytes complete."""
        data, lines = serialise(self.terminal, history=self.lines if history else 0)
        return data + unfinished(self._tail), lines


def unfinished(tail: bytes) -> bytes:
    """The sequence or character at the end of `tail` that is not complete."""
    escape = tail.rfind(b"\x1b")
    if escape >= 0 and is_open(tail[escape:]):
        return tail[escape:]
    for start in range(len(tail) - 1, max(-1, len(tail) - 4), -1):
        if tail[start] >= 0xC0:
            return tail[start:]
    return b""


def is_open(sequence: bytes) -> bool:
    """Whether the sequence that begins here, with an escape, has not come to its end."""
    scratch = Terminal(2, 2)
    scratch.feed(sequence[:1])
    return scratch.feed_until_ground(sequence[1:]) is None or not sequence[1:]


def without_lost_lines(data: bytes, history: int) -> bytes:
    """`data` less the plain lines at its start that would leave the history before its end."""
    kept = history + HISTORY_LINES_SPARE + ROWS_MAX
    if data.count(b"\r\n") <= kept:
        return data
    if any(escape in data for escape in ESCAPES):
        return data
    lines = data.split(b"\r\n")
    return b"\r\n".join(lines[-kept:])


class ScreenDaemon:
    """Answers the host's frames one after the other."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._emulators: dict[int, Emulator] = {}

    def serve(self) -> None:
        """Work until the host goes away."""
        decoder = FrameDecoder()
        while data := self._link.recv(RECEIVE_BYTES):
            for frame in merge_feeds(decoder.feed(data)):
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.type is FrameType.OPEN:
            opened = protocol.unpack(protocol.SCREEN_OPEN, frame.payload)
            self._emulators[frame.channel] = Emulator(*opened)
            return
        emulator = self._emulators.get(frame.channel)
        if emulator is None:
            return
        match frame.type:
            case FrameType.FEED:
                self._feed(frame.channel, emulator, frame.payload)
            case FrameType.RESIZE:
                emulator.terminal.resize(*protocol.unpack(protocol.SCREEN_SIZE, frame.payload))
            case FrameType.DROP:
                del self._emulators[frame.channel]
                emulator.terminal.close()
            case FrameType.SHOW:
                self._show(frame.channel, emulator, frame.payload)

    def _feed(self, channel: int, emulator: Emulator, data: bytes) -> None:
        emulator.feed(data)
        if emulator.answers:
            self._send(FrameType.ANSWER, channel, bytes(emulator.answers))
            emulator.answers.clear()
        self._send(FrameType.FED, channel, protocol.SEQUENCE.pack(emulator.seq))

    def _show(self, channel: int, emulator: Emulator, payload: bytes) -> None:
        number, flags = protocol.unpack(protocol.SCREEN_SHOW, payload)
        cols, rows = emulator.terminal.size
        if flags & protocol.SHOW_TEXT:
            data, lines = emulator.terminal.text().encode(), rows
        else:
            data, lines = emulator.show(history=bool(flags & protocol.SHOW_HISTORY))
        head = protocol.SCREEN_SHOWN.pack(number) + protocol.SNAPSHOT.pack(
            emulator.seq, len(data), cols, rows, lines, 1
        )
        step = protocol.CHUNK_BYTES_MAX * 8
        for start in range(0, max(len(data), 1), step):
            self._send(FrameType.SNAPSHOT, channel, head + data[start : start + step])

    def _send(self, kind: FrameType, channel: int, payload: bytes) -> None:
        self._link.sendall(protocol.encode(kind, channel, payload))


def merge_feeds(frames: list[Frame]) -> list[Frame]:
    """The same frames with neighbouring output of one terminal in one, which is quicker to draw."""
    merged: list[Frame] = []
    for frame in frames:
        last = merged[-1] if merged else None
        if last and (last.type, last.channel) == (frame.type, frame.channel) == (
            FrameType.FEED,
            frame.channel,
        ):
            merged[-1] = Frame(frame.type, frame.channel, last.payload + frame.payload)
        else:
            merged.append(frame)
    return merged


def main() -> None:
    """Serve on the socket whose number the host gave."""
    os.nice(NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as link:
        ScreenDaemon(link).serve()


if __name__ == "__main__":
    main()
