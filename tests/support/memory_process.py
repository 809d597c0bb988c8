"""A process that synchronises or searches an index until somebody kills it.

`rebuild PATH POINT`: build the index anew and stay at the named point for ever.
`search PATH`: search over and over until standard input ends, then say what was seen.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from holdfast.domain.memory import MemorySettings
from holdfast.memory.index import MemoryIndex
from tests.support.memory_file import Notes, WordEmbedder

OLD = {f"memory/{n}.md": f"apple pie number {n}" for n in range(8)}
NEW = {f"memory/{n}.md": f"apple tart number {n}" for n in range(8)}


def rebuild(path: Path, point: str) -> None:
    def at(reached: str) -> None:
        if reached == point:
            stay(reached)

    embedder = WordEmbedder("new")
    if point == "inside the embedder":
        embedder.before = lambda: stay(point)
    notes = Notes(NEW)
    index = MemoryIndex(path, MemorySettings(), embedder, at=at)
    index.sync(notes.documents(), notes.read)


def follow(path: Path, point: str) -> None:
    """Not anew: the documents changed, the settings did not."""

    def at(reached: str) -> None:
        if reached == point:
            stay(reached)

    notes = Notes(NEW)
    index = MemoryIndex(path, MemorySettings(), WordEmbedder("old"), at=at)
    index.sync(notes.documents(), notes.read)


def search(path: Path) -> None:
    import threading

    index = MemoryIndex(path, MemorySettings(), None)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    seen: dict[str, int] = {}
    while not ended.is_set():
        hits = index.search("apple", limit=50, min_score=None)
        kind = ",".join(sorted({hit.snippet.split()[1] for hit in hits})) + f":{len(hits)}"
        if not seen:
            sys.stdout.write("searching\n")
            sys.stdout.flush()
        seen[kind] = seen.get(kind, 0) + 1
    index.close()
    sys.stdout.write(json.dumps(seen) + "\n")


def stay(point: str) -> None:
    sys.stdout.write(f"{point}\n")
    sys.stdout.flush()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    {"rebuild": rebuild, "follow": follow, "search": search}[what](Path(where), *more)  # type: ignore[operator]
