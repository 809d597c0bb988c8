"""All vectors of an index in one array: compares ten thousand of them in a millisecond."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.connection import Connection
from holdfast.memory.engines import Scores, wanted

LOAD_AT_ONCE = 2_000


class Matrix:
    """Kept from one search to the next; only chunks that are new are read again."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._rows: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)
        self._version: tuple[int, str] | None = None

    def refresh(self, connection: Connection, model: str) -> None:
        """Read what is new, drop what is gone; nothing when nobody wrote since."""
        [version] = connection.execute("PRAGMA data_version").fetchone()
        if self._version == (version, model):
            return
        asked = "SELECT id FROM chunks WHERE model = ? AND embedding <> '[]'"
        ids = [row[0] for row in connection.execute(asked, (model,))]
        kept = [chunk_id for chunk_id in ids if chunk_id in self._places]
        fresh = [chunk_id for chunk_id in ids if chunk_id not in self._places]
        parts = [self._rows[[self._places[one] for one in kept]]] if kept else []
        for start in range(0, len(fresh), LOAD_AT_ONCE):
            parts.append(_load(connection, fresh[start : start + LOAD_AT_ONCE]))
        self._rows = np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)
        self._ids = kept + fresh
        self._places = {chunk_id: place for place, chunk_id in enumerate(self._ids)}
        self._version = (version, model)

    def nearest(self, vector: Sequence[float], count: int, *, filtered: bool) -> Scores:
        """The nearest chunks."""
        if not self._ids:
            return {}
        cosines = self._rows @ np.asarray(vector, dtype=np.float32)
        count = min(wanted(count, filtered=filtered), len(self._ids))
        best = np.argpartition(-cosines, count - 1)[:count]
        return {self._ids[place]: float(cosines[place]) for place in best.tolist()}

    def scores(self, vector: Sequence[float], ids: Iterable[str]) -> Scores:
        """Of these chunks."""
        known = [chunk_id for chunk_id in ids if chunk_id in self._places]
        if not known:
            return {}
        chosen = self._rows[[self._places[chunk_id] for chunk_id in known]]
        cosines = chosen @ np.asarray(vector, dtype=np.float32)
        return dict(zip(known, cosines.tolist(), strict=True))


def _load(connection: Connection, ids: list[str]) -> NDArray[np.float32]:
    """The vectors of chunks, in the order of their ids."""
    asked = "SELECT id, embedding FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
    found: dict[str, Any] = {
        chunk_id: np.array(json.loads(embedding), dtype=np.float32)
        for chunk_id, embedding in connection.execute(asked, (json.dumps(ids),))
    }
    return np.stack([found[chunk_id] for chunk_id in ids])
