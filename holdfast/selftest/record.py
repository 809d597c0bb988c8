"""What the product acknowledged, refused and showed while it was tortured: the checker's input."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

SEEN_MAX = 200_000


@dataclass(frozen=True)
class Acknowledged:
    """One command that was answered with success; `word` is unique to a message."""

    kind: str
    session_id: str
    id: str
    word: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class Finding:
    """One promise that was not kept."""

    kind: str
    detail: str
    session_id: str = ""


@dataclass
class Seen:
    """The frames that one socket client saw of a session, in order, over all its connections."""

    session_id: str
    frames: dict[str, list[tuple[int, str]]] = field(
        default_factory=lambda: {"output": [], "events": []}
    )
    # What the server had when the client was about to leave: so much it must have seen.
    due: dict[str, int] = field(default_factory=dict)

    def add(self, channel: str, seq: int, kind: str) -> None:
        """One more frame, up to a limit that no test of sane length reaches."""
        if len(self.frames[channel]) < SEEN_MAX:
            self.frames[channel].append((seq, kind))

    def last(self, channel: str) -> int:
        """The number of the newest frame."""
        return self.frames[channel][-1][0] if self.frames[channel] else 0

    def is_whole(self, channel: str) -> bool:
        """Whether everything that is due was seen, or as much as is noted down."""
        is_full = len(self.frames[channel]) >= SEEN_MAX
        return is_full or self.last(channel) >= self.due.get(channel, 0)


class Record:
    """Filled by many threads at once, read when they are done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: list[Acknowledged] = []
        self.refused_words: set[str] = set()
        # What a shell command writes, and the file it is written to.
        self.lines: dict[str, str] = {}
        self.seen: list[Seen] = []
        self.kills: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.findings: list[Finding] = []

    def acknowledge(self, kind: str, session_id: str, id: str, **more: str) -> None:  # noqa: A002
        """The product said yes."""
        with self._lock:
            self.acknowledged.append(Acknowledged(kind, session_id, id, **more))

    def refuse(self, word: str) -> None:
        """The product said no to the message with this word."""
        with self._lock:
            self.refused_words.add(word)

    def expect_line(self, word: str, path: str) -> None:
        """A shell command that writes this word was handed over."""
        with self._lock:
            self.lines[word] = path

    def watch(self, session_id: str) -> Seen:
        """A place for what one socket client will see."""
        with self._lock:
            self.seen.append(Seen(session_id))
            return self.seen[-1]

    def kill(self, part: str) -> None:
        """A part was killed."""
        with self._lock:
            self.kills[part] += 1

    def request(self, outcome: str) -> None:
        """A request was answered with this status, or not at all."""
        with self._lock:
            self.requests[outcome] += 1

    def find(self, kind: str, detail: str, session_id: str = "") -> None:
        """A promise was broken in sight of everybody."""
        with self._lock:
            self.findings.append(Finding(kind, detail, session_id))
