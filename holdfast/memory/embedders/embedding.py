"""What turns text into vectors: the promise of an embedder, and how its answers are checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

DIMS_MAX = 8_192
NO_PROVIDER, NO_MODEL = "none", "fts-only"


class Embedder(Protocol):
    """Vectors of one model. Safe to call from several threads."""

    @property
    def provider(self) -> str:
        """Who answers."""

    @property
    def model(self) -> str:
        """By which model."""

    @property
    def key(self) -> str:
        """A hash of what makes the answers differ (O-014): address, headers, model; no secret."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in order, all equally long; or EmbeddingFailed."""


class EmbeddingFailed(Exception):
    """No vectors came. `passing`: the same call may well succeed later."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class Identity(NamedTuple):
    """Whose vectors they are; vectors of two identities are never compared."""

    provider: str
    model: str
    key: str


NOBODY = Identity(NO_PROVIDER, NO_MODEL, "")


def identity_of(embedder: Embedder | None) -> Identity:
    """Without an embedder only words are indexed (O-034)."""
    if embedder is None:
        return NOBODY
    return Identity(embedder.provider, embedder.model, embedder.key)


def embed(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    """The vectors, each of length one; EmbeddingFailed when the answer makes no sense.

    Of length one, so that a dot product is the cosine and L2 distance orders the same way.
    """
    vectors = embedder.embed(texts)
    if len(vectors) != len(texts):
        said = f"asked {embedder.provider} for {len(texts)} vectors, {len(vectors)} came"
        raise EmbeddingFailed(said, passing=False)
    dims = {len(vector) for vector in vectors}
    if len(dims) > 1 or not all(0 < one <= DIMS_MAX for one in dims):
        raise EmbeddingFailed(f"{embedder.provider} sent {sorted(dims)} dimensions", passing=False)
    return [_unit(vector, embedder.provider) for vector in vectors]


def _unit(vector: Sequence[float], provider: str) -> list[float]:
    length = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(length):
        raise EmbeddingFailed(f"{provider} sent a vector that is not finite", passing=False)
    return [value / length for value in vector] if length > 0 else list(vector)
