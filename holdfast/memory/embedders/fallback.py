"""Another embedder for when the wanted one fails; words alone when that fails too (O-030)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.memory.embedders.embedding import Embedder, EmbeddingFailed

# How long the other one is kept before the wanted one is tried again.
RETURN_AFTER_S = 600.0
REASON_MAX = 300


class FallbackEmbedder:
    """Whom to ask. An index whose embedder fails falls back here and builds itself anew."""

    def __init__(
        self,
        wanted: Embedder | None,
        other: Embedder | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = [one for one in (wanted, other) if one is not None]
        self._clock = clock
        self._position = 0
        self._fell_at = 0.0
        self._reason: str | None = None
        self._mutex = threading.Lock()

    @property
    def current(self) -> Embedder | None:
        """Whom to ask now; None: index words only."""
        with self._mutex:
            return self._chain[self._position] if self._position < len(self._chain) else None

    @property
    def reason(self) -> str | None:
        """Why the wanted one is not asked; None when it is."""
        with self._mutex:
            return self._reason

    def fall_back(self, error: EmbeddingFailed) -> bool:
        """Ask the next from now on; False when there was nobody left who could have failed."""
        with self._mutex:
            if self._position >= len(self._chain):
                return False
            self._position += 1
            self._fell_at = self._clock()
            self._reason = str(error)[:REASON_MAX]
            return True

    def try_wanted_again(self) -> None:
        """Return to the wanted one when its rest is over."""
        with self._mutex:
            if self._position and self._clock() - self._fell_at >= RETURN_AFTER_S:
                self._position, self._reason = 0, None
