"""Embeddings of any server that speaks OpenAI's `/embeddings`, Ollama among them."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx2

from holdfast.memory.embedders.embedding import EmbeddingFailed

BATCH_TEXTS, BATCH_CHARACTERS = 64, 120_000
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 60.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
ATTEMPTS = 4
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 20.0
SAID_MAX = 200
# Whose values are secrets: another one makes no other vectors, so it is no part of the key.
_SECRET = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class HttpEmbedder:
    """One model at one address."""

    def __init__(
        self,
        provider: str,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.provider, self.model = provider, model
        self._url = base_url.rstrip("/") + "/embeddings"
        self.key = provider_key(base_url, model, headers or {})
        self._headers = dict(headers or {})
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._transport = transport
        self._pause = pause
        self._mutex = threading.Lock()
        self._client: httpx2.Client | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors, in batches; what is passing is tried a few times."""
        return [vector for batch in batches_of(texts) for vector in self._batch(batch)]

    def close(self) -> None:
        """Close the connections."""
        with self._mutex:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _batch(self, texts: list[str]) -> list[list[float]]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._call(texts)
            except _Passing as error:
                if attempt == ATTEMPTS:
                    raise EmbeddingFailed(str(error), passing=True) from error
                backoff_s = PAUSE_FIRST_S * 2 ** (attempt - 1)
                self._pause(min(PAUSE_MAX_S, max(backoff_s, error.after_s)))
        raise AssertionError("every attempt ends above")

    def _call(self, texts: list[str]) -> list[list[float]]:
        body = {"model": self.model, "input": texts}
        try:
            with self._http().stream("POST", self._url, json=body, headers=self._headers) as answer:
                content = _content(answer)
        except httpx2.TransportError as error:
            said = str(error) or type(error).__name__
            raise _Passing(f"{self.provider} is not reachable: {said}"[:SAID_MAX]) from error
        except httpx2.InvalidURL as error:
            raise EmbeddingFailed(f"{self._url}: {error}", passing=False) from error
        if answer.status_code == 429 or answer.status_code >= 500:
            raise _Passing(f"{self.provider} answered {answer.status_code}", _after_s(answer))
        if answer.status_code != 200:
            said = content.decode("utf-8", "replace")[:SAID_MAX]
            raise EmbeddingFailed(
                f"{self.provider} answered {answer.status_code}: {said}", passing=False
            )
        return _vectors(content, len(texts), self.provider)

    def _http(self) -> httpx2.Client:
        with self._mutex:
            if self._client is None:
                timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
                self._client = httpx2.Client(
                    timeout=timeout, transport=self._transport, follow_redirects=False
                )
            return self._client


def provider_key(base_url: str, model: str, headers: Mapping[str, str]) -> str:
    """A hash of what the vectors hang on (O-014); secrets are left out of it."""
    plain = {name.lower(): value for name, value in headers.items() if not _SECRET.search(name)}
    config = [base_url.rstrip("/"), model, sorted(plain.items())]
    return hashlib.sha256(json.dumps(config).encode("utf-8")).hexdigest()


def batches_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, bounded by their number and by their characters."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) >= BATCH_TEXTS or characters + len(text) > BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


class _Passing(Exception):
    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


def _content(answer: httpx2.Response) -> bytes:
    content = bytearray()
    for part in answer.iter_bytes():
        content += part
        if len(content) > ANSWER_BYTES_MAX:
            raise EmbeddingFailed("an answer of more than 64 MiB", passing=False)
    return bytes(content)


def _after_s(answer: httpx2.Response) -> float:
    try:
        seconds = float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0  # a date
    return seconds if math.isfinite(seconds) else 0.0


def _vectors(content: bytes, count: int, provider: str) -> list[list[float]]:
    try:
        rows = json.loads(content)["data"]
        ordered = sorted(rows, key=lambda row: row.get("index", 0))
        vectors = [[_number(value) for value in row["embedding"]] for row in ordered]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"{provider} sent no embeddings: {type(error).__name__}"
        raise EmbeddingFailed(said, passing=False) from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
        raise EmbeddingFailed(f"{provider} sent other vectors than asked for", passing=False)
    return vectors


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)
