"""The memory index of one project: follows its documents, answers queries, survives a kill."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.domain.clock import now_ms
from holdfast.domain.memory import (
    MAX_LIMIT,
    MAX_QUERY_CHARACTERS,
    Document,
    MemoryHit,
    MemorySettings,
    MemoryStatus,
    Source,
    SyncReport,
)
from holdfast.memory import schema
from holdfast.memory.connection import Connection, Driver
from holdfast.memory.embedders.embedding import (
    NOBODY,
    Embedder,
    EmbeddingFailed,
    Identity,
    embed,
    identity_of,
)
from holdfast.memory.embedders.fallback import FallbackEmbedder
from holdfast.memory.reader import Reader, is_damaged
from holdfast.memory.search import Question, search
from holdfast.memory.status import status_of
from holdfast.memory.swap import Hook
from holdfast.memory.sync import Progress, Read, chosen
from holdfast.memory.words import terms_of
from holdfast.memory.writer import Writer


class MemoryIndex:
    """One index file. Synchronous and thread-safe; any number of processes may hold one each.

    A FallbackEmbedder makes a failing embedder give way to another; a plain one that fails makes
    `sync` fail. `at` is told where a synchronisation is, for tests that kill it there.
    """

    def __init__(
        self,
        path: Path,
        settings: MemorySettings,
        embedder: Embedder | FallbackEmbedder | None,
        *,
        clock: Callable[[], int] = now_ms,
        at: Hook = lambda _point: None,
    ) -> None:
        self.path = path
        self.settings = settings
        may_fall_back = isinstance(embedder, FallbackEmbedder)
        self._embedders = (
            embedder if isinstance(embedder, FallbackEmbedder) else FallbackEmbedder(embedder)
        )
        self._clock = clock
        self._writing = threading.Lock()
        self._reader = Reader(path, vectors=settings.vectors)
        self._writer = Writer(path, settings, self._embedders, may_fall_back=may_fall_back, at=at)

    def sync(
        self,
        documents: Iterable[Document],
        read: Read,
        *,
        force: bool = False,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Bring the index up to the documents; anew if it was built with other settings."""
        wanted = chosen(documents, self.settings)
        told = progress or (lambda _done, _total: None)
        with self._writing:
            return self._writer.sync(wanted, read, force=force, progress=told)

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        sources: Sequence[Source] | None = None,
    ) -> list[MemoryHit]:
        """The chunks that answer a query, best first. Any text is a query."""
        asked = query[:MAX_QUERY_CHARACTERS]
        terms = terms_of(asked)
        identity, vector = self._vector_of(asked)
        try:
            with self._reader.snapshot() as connection:
                meta = schema.read_meta(connection) if connection is not None else None
                if meta is None:
                    return []
                if meta.identity != identity or len(vector or ()) != meta.vector_dims:
                    vector = None  # the index was swapped for one of another model meanwhile
                engine = self._reader.engine(connection, meta.model) if vector else None
                question = Question(
                    terms=terms,
                    vector=vector,
                    limit=min(MAX_LIMIT, max(1, limit or self.settings.query.max_results)),
                    min_score=min_score,
                    sources=sources,
                    model=None if meta.identity == NOBODY else meta.model,
                    settings=self.settings.query,
                    now_ms=self._clock(),
                )
                return search(connection, question, engine)
        except Driver.DatabaseError as error:
            if not is_damaged(error):
                raise
            # The next synchronisation builds a new one.
            return []

    def status(self, documents: Iterable[Document] | None) -> MemoryStatus:
        """What the index holds; without documents it is not asked whether they changed."""
        wanted = identity_of(self._embedders.current)
        known = None if documents is None else chosen(documents, self.settings)
        try:
            with self._reader.snapshot() as connection:
                dirty = self._differs(connection, known)
                return status_of(self.path, self.settings, wanted, connection, dirty=dirty)
        except Driver.DatabaseError as error:
            if not is_damaged(error):
                raise
            found = status_of(self.path, self.settings, wanted, None, dirty=True)
            return found.model_copy(update={"exists": True, "last_error": str(error)})

    def is_dirty(self, documents: Iterable[Document]) -> bool:
        """Whether a synchronisation would change anything."""
        try:
            with self._reader.snapshot() as connection:
                return self._differs(connection, chosen(documents, self.settings))
        except Driver.DatabaseError as error:
            if not is_damaged(error):
                raise
            return True

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def _differs(self, connection: Connection | None, documents: Sequence[Document] | None) -> bool:
        if connection is None:
            # Where there is nothing to remember, no index is missing.
            return bool(documents)
        wanted = schema.wanted_meta(self.settings, identity_of(self._embedders.current))
        if schema.difference(schema.read_meta(connection), wanted) is not None:
            return True
        if documents is None:
            return False
        found = set(connection.execute("SELECT path, hash, source FROM files"))
        return found != {(one.path, one.hash, one.source) for one in documents}

    def _vector_of(self, query: str) -> tuple[Identity, list[float] | None]:
        """The query's vector, asked for while nobody waits for the index; None: words must do."""
        embedder = self._embedders.current
        identity = identity_of(embedder)
        if embedder is None or not query.strip() or not self._holds_vectors_of(identity):
            return identity, None
        clean = query.encode("utf-8", "replace").decode("utf-8")
        try:
            return identity, embed(embedder, [clean])[0]
        except EmbeddingFailed:
            return identity, None

    def _holds_vectors_of(self, identity: Identity) -> bool:
        try:
            with self._reader.snapshot() as connection:
                meta = schema.read_meta(connection) if connection is not None else None
        except Driver.DatabaseError:
            return False
        return meta is not None and meta.identity == identity and meta.vector_dims is not None
