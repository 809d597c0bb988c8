"""HTTP requests to the API and the meaning of their answers; whoever sends them imports this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2

from holdfast.client.errors import Refused, Unreachable

Json: TypeAlias = Any


@dataclass(frozen=True)
class Request:
    """One call; `path` begins below /api/v1, a parameter that is None is left out."""

    method: str
    path: str
    body: Json = None
    params: Mapping[str, Any] | None = None
    idempotency_key: str | None = None

    def arguments(self) -> dict[str, Any]:
        """What httpx2's `request` and `stream` take, of either kind of client."""
        chosen = {key: value for key, value in (self.params or {}).items() if value is not None}
        key = self.idempotency_key
        return {
            "method": self.method,
            "url": f"/api/v1{self.path}",
            "json": self.body,
            "params": chosen or None,
            "headers": {"Idempotency-Key": key} if key else {},
        }


class LineSplitter:
    """Puts lines together from chunks of bytes.

    A line ends with a newline and nothing else: U+2028 in a text does not end it.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that this chunk completes."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        for start in others:
            yield b"".join(self._parts).decode()
            self._parts = [start]

    def rest(self) -> Iterator[str]:
        """The last line, if it has no newline at its end."""
        if rest := b"".join(self._parts):
            yield rest.decode()


def connection_options(url: str, token: str, timeout_s: float) -> dict[str, Any]:
    """What httpx2.Client and httpx2.AsyncClient are made with."""
    return {
        "base_url": url,
        "headers": authorization(token),
        "timeout": timeout_s,
        "trust_env": False,
    }


def authorization(token: str) -> dict[str, str]:
    """The header that says who asks; none for those who have no token yet."""
    return {"Authorization": f"Bearer {token}"} if token else {}


@contextmanager
def transport_errors_as_unreachable(url: str) -> Iterator[None]:
    """Raise Unreachable where the HTTP library says that no answer came."""
    try:
        yield
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise Unreachable(f"no answer from {url}: {reason}") from error


def answer_content(answer: httpx2.Response) -> Json:
    """The JSON or text of an answer that was read; Refused if the server refused."""
    if answer.is_error:
        raise _refusal(answer)
    if answer.headers.get("content-type", "").startswith("application/json"):
        return answer.json() if answer.content else None
    return answer.text


def _refusal(answer: httpx2.Response) -> Refused:
    try:
        error = answer.json()["error"]
        return Refused(answer.status_code, error["code"], error["message"], error.get("details"))
    except (ValueError, KeyError, TypeError):
        return Refused(
            answer.status_code, "unknown", f"HTTP {answer.status_code}: {answer.text[:200]}"
        )
