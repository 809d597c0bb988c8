"""The only one who changes an index: follows its documents, or builds it anew beside the old."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from holdfast.domain.clock import now_ms
from holdfast.domain.memory import Document, MemorySettings, SyncReport
from holdfast.memory import cache, locks, rows, schema
from holdfast.memory.connection import Connection, Driver, connect, create
from holdfast.memory.embedders.embedding import EmbeddingFailed, identity_of
from holdfast.memory.embedders.fallback import FallbackEmbedder
from holdfast.memory.reader import is_damaged
from holdfast.memory.schema import Meta
from holdfast.memory.state import ERROR_MAX, State, read_state, write_state
from holdfast.memory.swap import Hook, discard, restore, swap, sweep, temporary_of, unfinished
from holdfast.memory.sync import DimensionsChanged, Progress, Read, Sync

# For tests that want many small reindexes and no crash (O-018).
FAST_REINDEX = "HOLDFAST_TEST_FAST_REINDEX"
ATTEMPTS_MAX = 6


class Writer:
    """Synchronises the index at `path`; one at a time in all processes."""

    def __init__(
        self,
        path: Path,
        settings: MemorySettings,
        embedders: FallbackEmbedder,
        *,
        may_fall_back: bool,
        at: Hook,
    ) -> None:
        self._path = path
        self._settings = settings
        self._embedders = embedders
        self._may_fall_back = may_fall_back
        self._at = at

    def sync(
        self, documents: Sequence[Document], read: Read, *, force: bool, progress: Progress
    ) -> SyncReport:
        """Bring the index up to the documents, and keep what happened."""
        began = time.monotonic()
        _make_private_folders(self._path.parent)
        with locks.writing(self._path) as lock:
            try:
                report = self._until_done(documents, read, force=force, progress=progress)
            except Exception as error:
                before = read_state(self._path)
                said = f"{type(error).__name__}: {error}"[:ERROR_MAX]
                write_state(lock, before.model_copy(update={"last_error": said}))
                raise
            write_state(lock, State(last_sync_at=now_ms()))
        report.fell_back = self._embedders.reason
        report.duration_ms = round((time.monotonic() - began) * 1000)
        return report

    def _until_done(
        self, documents: Sequence[Document], read: Read, *, force: bool, progress: Progress
    ) -> SyncReport:
        restore(self._path)
        self._embedders.try_wanted_again()
        reason = "forced" if force else None
        dims: int | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                report = self._attempt(documents, read, progress, reason, dims)
                sweep(self._path)
                return report
            except EmbeddingFailed as error:
                if not (self._may_fall_back and self._embedders.fall_back(error)):
                    raise
                dims = None
            except DimensionsChanged as change:
                reason, dims = reason or "dims", change.dims
            except Driver.DatabaseError as error:
                if not is_damaged(error):
                    raise
                reason = "damaged"
        raise EmbeddingFailed("the model's dimensions differ from call to call", passing=False)

    def _attempt(
        self,
        documents: Sequence[Document],
        read: Read,
        progress: Progress,
        reason: str | None,
        dims: int | None,
    ) -> SyncReport:
        identity = identity_of(self._embedders.current)
        found, generation = (None, 0) if reason == "damaged" else self._found()
        reason = reason or schema.difference(found, schema.wanted_meta(self._settings, identity))
        report = SyncReport(reindexed=reason is not None, reason=reason)
        if reason is None:
            assert found is not None  # or there would be a difference
            self._in_place(documents, read, progress, report, found.vector_dims)
        elif os.environ.get(FAST_REINDEX) == "1":
            self._in_place(documents, read, progress, report, dims)
        else:
            self._beside(documents, read, progress, report, dims, generation + 1)
        return report

    def _found(self) -> tuple[Meta | None, int]:
        """What the index was built with, and its generation."""
        if not self._path.exists():
            return None, 0
        with closing(connect(self._path, vectors=False)) as connection:
            [generation] = connection.execute("PRAGMA user_version").fetchone()
            return schema.read_meta(connection), generation

    def _in_place(
        self,
        documents: Sequence[Document],
        read: Read,
        progress: Progress,
        report: SyncReport,
        dims: int | None,
    ) -> None:
        """Follow the documents; in tests also a reindex that a kill would leave half done."""
        if not self._path.exists():
            create(self._path)
        with closing(connect(self._path, vectors=self._settings.vectors)) as connection:
            sync = self._sync(connection, dims)
            with sync.transaction():
                if report.reindexed:
                    rows.clear(connection)
                rows.reconcile(connection, dims)
            sync.run(documents, read, report, progress)
            sync.finish(report)

    def _beside(
        self,
        documents: Sequence[Document],
        read: Read,
        progress: Progress,
        report: SyncReport,
        dims: int | None,
        generation: int,
    ) -> None:
        """The safe reindex: a new file is built, and takes the old one's place when complete.

        One that was broken off is kept until the next attempt has taken its embeddings: they may
        have cost hours, and a first index has no old one that could have kept them.
        """
        before, fresh = unfinished(self._path), temporary_of(self._path)
        try:
            create(fresh)
            with closing(connect(fresh, vectors=self._settings.vectors)) as connection:
                # Nobody needs half of a new file, so it is flushed once, before the swap. But a
                # killed writer's must be readable, so its journal is a file.
                connection.execute("PRAGMA journal_mode = TRUNCATE")
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(f"PRAGMA user_version = {generation:d}")
                sync = self._sync(connection, dims, by_lot=True)
                for source in (self._path, *before):
                    if source.exists():
                        cache.seed(connection, source)
                for source in before:
                    discard(source)
                sync.run(documents, read, report, progress)
                sync.finish(report)
            self._at("before the swap")
            swap(self._path, fresh, self._at)
        except BaseException as error:
            useless = isinstance(error, OSError | Driver.DatabaseError | DimensionsChanged)
            if useless or report.chunks_embedded == 0:
                discard(fresh)
            raise

    def _sync(self, connection: Connection, dims: int | None, *, by_lot: bool = False) -> Sync:
        schema.ensure(connection)
        embedder = self._embedders.current
        return Sync(connection, self._settings, embedder, dims=dims, at=self._at, by_lot=by_lot)


def _make_private_folders(folder: Path) -> None:
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)
