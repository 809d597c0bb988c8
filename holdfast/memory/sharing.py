"""Indexes of memories between machines: who builds one shares it, who reads one takes the newest.

The file goes into the blob store in pieces: a piece that did not change is there already. With a
store that belongs to one machine nothing is shared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from holdfast.memory import locks, swap
from holdfast.memory.locks import MemoryBusy
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_hosts import MemoryIndexRow
from holdfast.storage.hosts import memory_indexes
from holdfast.storage.upkeep.removal import delete_bytes, drop_blobs

PIECE_BYTES = 1 << 20
SHARED_BYTES_MAX = 1 << 30
MEDIA_TYPE = "application/vnd.sqlite3"
# Pieces that a newer index does not name go away while an older one is read: then it is read anew.
READS_MAX = 3
log = structlog.get_logger()


class SharedIndexes:
    """What this machine, if it is a host, shares and takes."""

    def __init__(self, store: OpenStore, host_id: Callable[[], str | None]) -> None:
        self._store = store
        self._host_id = host_id

    def newest(self, project_id: str) -> MemoryIndexRow | None:
        """The newest index that a machine shared."""
        if self._store.is_sqlite:
            return None
        return self._store.read(lambda db: memory_indexes.find(db, project_id))

    def is_foreign(self, newest: MemoryIndexRow | None) -> bool:
        """Whether another machine builds this index."""
        return newest is not None and newest.host_id != self._host_id()

    def take(self, project_id: str, path: Path) -> MemoryIndexRow | None:
        """Have the newest index at `path`, unless somebody writes there; what is known of it."""
        for _ in range(READS_MAX):
            newest = self.newest(project_id)
            if newest is None or not newest.size or newest.generation <= _generation(path):
                return newest
            try:
                self._take(newest, path)
            except BlobMissing:
                continue
            except (MemoryBusy, OSError) as error:
                log.info("memory.not_taken", project=project_id, error=str(error)[:200])
            return newest
        log.warning("memory.not_taken", project=project_id, error="its pieces are not there")
        return self.newest(project_id)

    def share(self, project_id: str, path: Path) -> None:
        """Share the index at `path` when it is not the one that was shared or taken last."""
        host_id = self._host_id()
        if self._store.is_sqlite or host_id is None or not path.exists():
            return
        with locks.writing(path):
            newest = self.newest(project_id)
            is_mine = newest is not None and newest.host_id == host_id
            if is_mine and _mark(path) == _mark_of(path, newest.generation if newest else 0):
                return
            generation = self._share(project_id, host_id, path)
            _write_mark(path, generation)

    def _take(self, newest: MemoryIndexRow, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locks.writing(path, within_s=0):
            if newest.generation <= _generation(path):
                return
            swap.restore(path)
            swap.sweep(path)
            fresh = swap.temporary_of(path)
            try:
                self._write(newest.project_id, fresh)
                swap.swap(path, fresh, lambda _point: None)
            finally:
                swap.discard(fresh)
            _write_mark(path, newest.generation)

    def _write(self, project_id: str, fresh: Path) -> None:
        names = self._store.read(lambda db: memory_indexes.parts(db, project_id))
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            for name in names:
                out.write(self._store.blobs.read(name))

    def _share(self, project_id: str, host_id: str, path: Path) -> int:
        began = time.time()
        size, note = path.stat().st_size, ""
        if size > SHARED_BYTES_MAX:
            note = f"the index takes {size >> 20} MiB, which is too large to be shared"
        pieces = [] if note else [self._store.blobs.put(one, MEDIA_TYPE) for one in _pieces(path)]

        def work(db: Db) -> tuple[int, set[str]]:
            found = memory_indexes.share(db, project_id, host_id, pieces, note=note)
            generation, unnamed = found
            return generation, drop_blobs(db, self._store, unnamed) if unnamed else set()

        generation, gone = self._store.write(work)
        delete_bytes(self._store, gone, began)
        return generation


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _mark_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.generation")


def _mark_of(path: Path, generation: int) -> dict[str, int]:
    """The generation, and the file that it belongs to."""
    found = path.stat()
    return {"generation": generation, "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _mark(path: Path) -> dict[str, int]:
    try:
        found = json.loads(_mark_path(path).read_text())
        return {str(key): int(value) for key, value in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _generation(path: Path) -> int:
    """The generation of the index at `path`; 0 for one that was never shared or taken."""
    return _mark(path).get("generation", 0) if path.exists() else 0


def _write_mark(path: Path, generation: int) -> None:
    draft = _mark_path(path).with_suffix(".draft")
    draft.write_text(json.dumps(_mark_of(path, generation)))
    draft.replace(_mark_path(path))
