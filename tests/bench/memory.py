"""How long a memory of ten thousand chunks thinks about a question, beside bare numpy and FTS5."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.domain.memory import Document, MemorySettings
from holdfast.memory.connection import Connection, connect
from holdfast.memory.index import MemoryIndex
from tests.bench.rounds import TINY, count, middle, noise, p99, timed_ms
from tests.bench.row import Row

CHUNKS, DIMS = (500 if TINY else 10_000), 384
WORDS = [f"word{number}" for number in range(5_000)]
CHOSEN = 24


class RandomEmbedder:
    """A vector for every text, at once: it is the index that is measured."""

    provider, model, key = "bench", "random", "bench"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Always the same vector for the same text."""
        seeds = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) for text in texts]
        return [np.random.default_rng(seed).standard_normal(DIMS).tolist() for seed in seeds]


def measure() -> list[Row]:
    """Searches with either engine, the raw work they cannot do without, and a quiet sync."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder:
        path = Path(folder) / "memory.sqlite"
        texts = _texts()
        documents = [_document(name, text) for name, text in texts.items()]
        index = MemoryIndex(path, MemorySettings(), RandomEmbedder())
        index.sync(documents, lambda one: texts[one.path])
        array = MemoryIndex(path, MemorySettings(vectors=False), RandomEmbedder())
        try:
            return [*_searches(index, array, path), _quiet_sync(index, documents)]
        finally:
            index.close()
            array.close()


def _texts() -> dict[str, str]:
    """Each of one chunk, about as long as a chunk may be."""
    chance = random.Random(7)
    return {
        f"memory/{number}.md": " ".join(chance.choices(WORDS, k=170)) for number in range(CHUNKS)
    }


def _document(path: str, text: str) -> Document:
    found = hashlib.sha256(text.encode()).hexdigest()
    return Document(path=path, source="memory", hash=found, mtime_ms=0, size=len(text))


def _searches(index: MemoryIndex, array: MemoryIndex, path: Path) -> list[Row]:
    chance = random.Random(9)
    queries = [" ".join(chance.choices(WORDS, k=4)) for _ in range(count(100))]
    engines = {"numpy": array, "sqlite-vec": index}
    times: dict[str, list[float]] = {name: [] for name in engines}
    bare: list[float] = []
    vectors = np.random.default_rng(3).standard_normal((CHUNKS, DIMS)).astype(np.float32)
    connection = connect(path, vectors=False)
    try:
        for engine in engines.values():
            engine.search("word1", limit=6, min_score=0.0)  # opens the file, fills the array
        for query in queries:
            bare.append(timed_ms(lambda query=query: _bare(connection, vectors, query)))  # type: ignore[misc]
            for name, engine in engines.items():
                asked = lambda engine=engine, query=query: engine.search(  # noqa: E731
                    query, limit=6, min_score=0.0
                )
                times[name].append(timed_ms(asked))
    finally:
        connection.close()
    return [
        Row(f"memory search, {CHUNKS:,} chunks × {DIMS}, {name}, p50", middle(taken), "ms",
            "bare dot product and FTS5 query", middle(bare), middle(taken) / middle(bare),
            "< 50 ms", f"{noise(taken)}, p99 {p99(taken):.1f} ms")
        for name, taken in times.items()
    ]  # fmt: skip


def _bare(connection: Connection, vectors: np.ndarray, query: str) -> None:
    cosines = vectors @ vectors[0]
    np.argpartition(-cosines, CHOSEN)
    match = " OR ".join(query.split())
    asked = "SELECT id, rank FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT ?"
    connection.execute(asked, (match, CHOSEN)).fetchall()


def _quiet_sync(index: MemoryIndex, documents: list[Document]) -> Row:
    def nobody(_document: Document) -> str:
        raise AssertionError("nothing changed, so nothing is read")

    taken = [timed_ms(lambda: index.sync(documents, nobody)) for _ in range(count(20))]
    name = f"memory sync when nothing changed, {CHUNKS:,} files, p50"
    return Row(name, middle(taken), "ms", None, None, None, "", noise(taken))
