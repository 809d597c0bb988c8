"""One pass over the documents: what changed is cut, embedded and written, a file at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from holdfast.domain.memory import MAX_FILE_BYTES, Document, MemorySettings, SyncReport
from holdfast.memory import cache, rows, schema
from holdfast.memory.chunking import Chunk, chunks_of
from holdfast.memory.connection import Connection, has_vectors
from holdfast.memory.embedders.embedding import Embedder, embed, identity_of
from holdfast.memory.rows import NO_VECTOR, Embedded, as_json, dims_of
from holdfast.memory.swap import Hook

FILES_MAX = 20_000
# Calls to an embedder at once (O-027), and how much is put into one.
CALLS_AT_ONCE = 4
LOT_TEXTS, LOT_FILES, LOT_CHARACTERS = 64, 64, 4_000_000

Read = Callable[[Document], str]
Progress = Callable[[int, int], None]


class DimensionsChanged(Exception):
    """The model answers with other dimensions than the index has: it must be built anew."""

    def __init__(self, dims: int) -> None:
        super().__init__(f"vectors have {dims} dimensions now")
        self.dims = dims


@dataclass
class _Lot:
    """Some documents whose missing vectors are asked for together."""

    files: list[tuple[Document, list[Chunk]]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # text by hash
    known: cache.Vectors = field(default_factory=dict)
    fresh: cache.Vectors = field(default_factory=dict)
    characters: int = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.missing) >= LOT_TEXTS
            or len(self.files) >= LOT_FILES
            or self.characters >= LOT_CHARACTERS
        )


def chosen(documents: Iterable[Document], settings: MemorySettings) -> list[Document]:
    """What is to be indexed: of wanted sources, small enough, each path once, not too many."""
    found: dict[str, Document] = {}
    for document in documents:
        if document.source in settings.sources and document.size <= MAX_FILE_BYTES:
            found.setdefault(document.path, document)
        if len(found) >= FILES_MAX:
            break
    return list(found.values())


class Sync:
    """Brings the index behind `connection` up to the documents."""

    def __init__(
        self,
        connection: Connection,
        settings: MemorySettings,
        embedder: Embedder | None,
        *,
        dims: int | None,
        at: Hook,
        by_lot: bool = False,
    ) -> None:
        """`by_lot`: nobody will see half of this index, so many files may share a transaction."""
        self.dims = dims
        self._by_lot = by_lot
        self._connection = connection
        self._settings = settings
        self._embedder = embedder
        self._identity = identity_of(embedder)
        self._vectors = has_vectors(connection)
        self._at = at

    def run(
        self, documents: Sequence[Document], read: Read, report: SyncReport, progress: Progress
    ) -> None:
        """Write what changed, forget what vanished, and count into the report."""
        asked = "SELECT path, hash, source FROM files"
        known = {path: (text_hash, source) for path, text_hash, source in self._execute(asked)}
        self._forget(set(known) - {one.path for one in documents}, report)
        changed = [one for one in documents if known.get(one.path) != (one.hash, one.source)]
        progress(0, len(changed))
        done = 0
        for lot in self._embedded(self._lots(changed, read)):
            self._check_dims(lot)
            with self.transaction() if self._by_lot else nullcontext():
                for document, chunks in lot.files:
                    self._put(lot, document, chunks, report)
                    done += 1
                    progress(done, len(changed))

    def finish(self, report: SyncReport) -> None:
        """Say what the index was built with, prune the cache, and count what there is."""
        meta = schema.wanted_meta(self._settings, self._identity, self.dims)
        with self.transaction():
            if schema.read_meta(self._connection) != meta:
                schema.write_meta(self._connection, meta)
            cache.prune(self._connection, self._settings.cache_entries)
        [report.files] = self._execute("SELECT count(*) FROM files").fetchone()
        [report.chunks] = self._execute("SELECT count(*) FROM chunks").fetchone()
        report.provider, report.model = self._identity.provider, self._identity.model

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, whenever we die. Inside another it is a part of that one."""
        if self._connection.in_transaction:
            yield
            return
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    def _execute(self, statement: str) -> Connection:
        return self._connection.execute(statement)

    def _forget(self, paths: set[str], report: SyncReport) -> None:
        for path in sorted(paths):
            with self.transaction():
                rows.drop(self._connection, path)
        report.files_removed += len(paths)

    def _lots(self, changed: Sequence[Document], read: Read) -> Iterator[_Lot]:
        lot = _Lot()
        for document in changed:
            try:
                text = read(document)
            except OSError:
                # Gone since it was listed: what the index has of it goes as well.
                with self.transaction():
                    rows.drop(self._connection, document.path)
                continue
            self._add(lot, document, text)
            if lot.is_full:
                yield lot
                lot = _Lot()
        if lot.files:
            yield lot

    def _add(self, lot: _Lot, document: Document, text: str) -> None:
        # Half a surrogate pair can be in a string, and not in a database.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        chunks = chunks_of(clean, self._settings.chunks)
        lot.files.append((document, chunks))
        lot.characters += len(clean)
        if self._embedder is not None:
            known = self._known(document.path, {one.hash for one in chunks})
            lot.known.update(known)
            lot.missing.update((one.hash, one.text) for one in chunks if one.hash not in known)

    def _known(self, path: str, hashes: set[str]) -> cache.Vectors:
        asked = "SELECT hash, embedding FROM chunks WHERE path = ? AND embedding <> '[]'"
        found = self._connection.execute(asked, (path,)).fetchall()
        known = {one: vector for one, vector in found if one in hashes}
        missing = hashes - set(known)
        return known | cache.look_up(self._connection, self._identity, missing, self.dims)

    def _embedded(self, lots: Iterator[_Lot]) -> Iterator[_Lot]:
        """The lots with their vectors, in order, a few of them being asked for at once."""
        if self._embedder is None:
            yield from lots
            return
        pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="memory-embed")
        waiting: deque[Future[_Lot]] = deque()
        try:
            for lot in lots:
                waiting.append(pool.submit(_ask, self._embedder, lot))
                if len(waiting) >= CALLS_AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _check_dims(self, lot: _Lot) -> None:
        """One length for all vectors; what comes fresh is right, what was kept may be old."""
        lengths = [dims_of(one) for one in (*lot.fresh.values(), *lot.known.values())]
        if not lengths:
            return
        if self.dims is None:
            self.dims = lengths[0]
        if any(one != self.dims for one in lengths):
            raise DimensionsChanged(lengths[0])

    def _put(self, lot: _Lot, document: Document, chunks: list[Chunk], report: SyncReport) -> None:
        fresh = {one.hash: lot.fresh[one.hash] for one in chunks if one.hash in lot.fresh}
        vectors = lot.known | lot.fresh
        with self.transaction():
            if self._vectors and self.dims is not None:
                schema.ensure_vectors(self._connection, self.dims)
            found = [Embedded(one, vectors.get(one.hash, NO_VECTOR)) for one in chunks]
            rows.put(self._connection, document, found, self._identity.model)
            cache.keep(self._connection, self._identity, fresh)
            self._at("before a file is committed")
        self._at("after a file was committed")
        report.files_changed += 1
        report.chunks_embedded += len(fresh)
        if self._embedder is not None:
            report.embeddings_cached += sum(one.hash not in fresh for one in chunks)


def _ask(embedder: Embedder, lot: _Lot) -> _Lot:
    texts = list(lot.missing.values())
    if texts:
        vectors = [as_json(vector) for vector in embed(embedder, texts)]
        lot.fresh = dict(zip(lot.missing, vectors, strict=True))
    return lot
