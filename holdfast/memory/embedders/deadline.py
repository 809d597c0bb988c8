"""An embedder that says why it failed last, and does not let those wait who ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from holdfast.memory.embedders.embedding import Embedder, EmbeddingFailed

TROUBLE_MAX = 300
# After it failed to answer in time it is not asked again so soon: every search would wait.
REST_S = 30.0


class DeadlineEmbedder:
    """Stands before another embedder; `trouble` is None after it answered."""

    def __init__(
        self,
        inner: Embedder,
        *,
        within_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._within_s = within_s
        self._clock = clock
        self._resting_until = 0.0
        self.trouble: str | None = None

    @property
    def provider(self) -> str:
        """Who answers."""
        return self._inner.provider

    @property
    def model(self) -> str:
        """By which model."""
        return self._inner.model

    @property
    def key(self) -> str:
        """What makes the answers differ."""
        return self._inner.key

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The inner one's answer, or EmbeddingFailed in time."""
        if self._within_s is not None and self._clock() < self._resting_until:
            raise EmbeddingFailed(self.trouble or "it rests", passing=True)
        try:
            found = self._in_time(texts)
        except EmbeddingFailed as error:
            self.trouble = str(error)[:TROUBLE_MAX]
            if error.passing:
                self._resting_until = self._clock() + REST_S
            raise
        self.trouble = None
        return found

    def close(self) -> None:
        """Close the inner one's connections, if it has any."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()

    def _in_time(self, texts: Sequence[str]) -> list[list[float]]:
        if self._within_s is None:
            return self._inner.embed(texts)
        answer: Future[list[list[float]]] = Future()
        # A thread that nobody waits for: the answer may never come.
        threading.Thread(target=self._answer, args=(texts, answer), daemon=True).start()
        try:
            return answer.result(self._within_s)
        except TimeoutError:
            said = f"{self.provider} did not answer within {self._within_s:.0f} s"
            raise EmbeddingFailed(said, passing=True) from None

    def _answer(self, texts: Sequence[str], answer: Future[list[list[float]]]) -> None:
        try:
            answer.set_result(self._inner.embed(texts))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            answer.set_exception(error)
