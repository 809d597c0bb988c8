"""Notes that need no files, and an embedder that needs no model."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.domain.memory import Document, MemoryHit, MemorySettings, Source
from holdfast.memory.connection import Connection, connect
from holdfast.memory.embedders.embedding import Embedder, EmbeddingFailed
from holdfast.memory.embedders.fallback import FallbackEmbedder
from holdfast.memory.index import MemoryIndex
from holdfast.memory.swap import Hook

DIMS = 16


class Notes:
    """Documents by path."""

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        self.texts = dict(texts or {})
        self.mtimes: dict[str, int] = {}
        self.read_paths: list[str] = []

    def __setitem__(self, path: str, text: str) -> None:
        self.texts[path] = text

    def __delitem__(self, path: str) -> None:
        del self.texts[path]

    def documents(self) -> list[Document]:
        return [self._document(path) for path in self.texts]

    def read(self, document: Document) -> str:
        self.read_paths.append(document.path)
        if document.path not in self.texts:
            raise FileNotFoundError(document.path)
        return self.texts[document.path]

    def _document(self, path: str) -> Document:
        content = self.texts[path].encode("utf-8", "surrogatepass")
        source: Source = "sessions" if path.startswith("sessions/") else "memory"
        return Document(
            path=path,
            source=source,
            hash=hashlib.sha256(content).hexdigest(),
            mtime_ms=self.mtimes.get(path, 1_000),
            size=len(content),
        )


class WordEmbedder:
    """Texts with the same words are near each other; says what it was asked."""

    def __init__(self, model: str = "words", *, dims: int = DIMS, provider: str = "fake") -> None:
        self.provider, self.model, self.key = provider, model, f"key of {model}"
        self.dims = dims
        self.asked: list[str] = []
        self.failure: EmbeddingFailed | None = None
        self.before: Callable[[], None] = lambda: None
        self._mutex = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.before()
        if self.failure is not None:
            raise self.failure
        with self._mutex:
            self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.01] * self.dims
        for word in re.findall(r"\w+", text.casefold()):
            vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % self.dims] += 1.0
        return vector


class MemoryFile:
    """An index in a folder, with notes to fill it."""

    def __init__(
        self,
        folder: Path,
        texts: dict[str, str] | None = None,
        *,
        embedder: Embedder | FallbackEmbedder | None = None,
        settings: MemorySettings | None = None,
        at: Hook = lambda _point: None,
    ) -> None:
        self.path = folder / "state" / "memory" / "agent.sqlite"
        self.notes = Notes(texts)
        self.index = MemoryIndex(self.path, settings or MemorySettings(), embedder, at=at)

    def sync(self, *, force: bool = False) -> dict[str, object]:
        report = self.index.sync(self.notes.documents(), self.notes.read, force=force)
        return report.model_dump()

    def again(
        self,
        *,
        embedder: Embedder | FallbackEmbedder | None = None,
        settings: MemorySettings | None = None,
    ) -> MemoryFile:
        """The same file and notes through another handle."""
        other = MemoryFile(Path(), embedder=embedder, settings=settings)
        other.path, other.notes = self.path, self.notes
        other.index = MemoryIndex(self.path, settings or self.index.settings, embedder)
        return other

    def paths(self, query: str) -> list[str]:
        return [hit.path for hit in self.search(query)]

    def search(self, query: str) -> list[MemoryHit]:
        return self.index.search(query, limit=None, min_score=None)

    def sql(self, statement: str, *, vectors: bool = False) -> list[tuple[object, ...]]:
        connection: Connection = connect(self.path, vectors=vectors)
        try:
            return list(connection.execute(statement).fetchall())
        finally:
            connection.close()

    def close(self) -> None:
        self.index.close()
