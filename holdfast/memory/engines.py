"""Who compares vectors: the promise of an engine, and sqlite-vec as one (O-032)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from holdfast.memory.connection import Connection
from holdfast.memory.rows import as_bytes

NEAREST_MAX = 2_000

Scores = dict[str, float]


class VectorEngine(Protocol):
    """Cosines of chunks to a vector of length one, by chunk id."""

    def refresh(self, connection: Connection, model: str) -> None:
        """Learn what changed in the index."""

    def nearest(self, vector: Sequence[float], count: int, *, filtered: bool) -> Scores:
        """The nearest chunks; more of them when some will be left out afterwards."""

    def scores(self, vector: Sequence[float], ids: Iterable[str]) -> Scores:
        """Of these chunks, as far as they have a vector."""


def wanted(count: int, *, filtered: bool) -> int:
    """How many neighbours to ask for (O-032)."""
    return min(NEAREST_MAX, max(count, 10 * count) if filtered else count)


class SqliteVec:
    """The table `chunks_vec`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refresh(self, connection: Connection, model: str) -> None:
        """The table is always up to date."""

    def nearest(self, vector: Sequence[float], count: int, *, filtered: bool) -> Scores:
        """The nearest chunks."""
        asked = "SELECT id, distance FROM chunks_vec WHERE embedding MATCH ? AND k = ?"
        arguments = (as_bytes(vector), wanted(count, filtered=filtered))
        found = self._connection.execute(asked, arguments)
        # The distance is L2, and both vectors have length one.
        return {chunk_id: 1 - distance * distance / 2 for chunk_id, distance in found}

    def scores(self, vector: Sequence[float], ids: Iterable[str]) -> Scores:
        """Of these chunks; from their own rows, for a look into `chunks_vec` reads a whole page."""
        found = self._connection.execute(
            "SELECT id, 1 - vec_distance_cosine(embedding, ?) FROM chunks"
            " WHERE id IN (SELECT value FROM json_each(?)) AND json_array_length(embedding) = ?",
            (as_bytes(vector), json.dumps(list(ids)), len(vector)),
        )
        return {chunk_id: score for chunk_id, score in found if score is not None}
