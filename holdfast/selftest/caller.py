"""HTTP that does not give up: the same request again, with the same key, until it is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from holdfast.client.client import Client
from holdfast.client.errors import Refused, Unreachable
from holdfast.selftest.record import Record

PATIENCE_S = 180.0
RETRY_S = 0.3
PASSING = frozenset({429, 502, 503, 504})


class GaveUp(Exception):
    """No answer for minutes: nobody knows whether the command took effect."""


@dataclass(frozen=True)
class Reply:
    """An answer; `body` is the error's when `ok` is false."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the command was acknowledged."""
        return self.status < 400


class Caller:
    """One client. POSTs carry an Idempotency-Key, so that a repeat is no second act."""

    def __init__(self, url: str, token: str, record: Record) -> None:
        self.client = Client(url, token, timeout_s=30.0)
        self.record = record

    def get(self, path: str, **params: Any) -> Reply:
        """Read."""
        return self._call("GET", path, None, params, None)

    def post(self, path: str, body: Any = None) -> Reply:
        """Act, once."""
        return self._call("POST", path, body, {}, uuid4().hex)

    def delete(self, path: str, **params: Any) -> Reply:
        """Remove or end; a repeat of it is refused, which the caller must expect."""
        return self._call("DELETE", path, None, params, None)

    def close(self) -> None:
        """Give back the connections."""
        self.client.close()

    def _call(
        self, method: str, path: str, body: Any, params: dict[str, Any], key: str | None
    ) -> Reply:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            reply = self._try(method, path, body, params, key)
            if reply is not None:
                return reply
            if time.monotonic() > deadline:
                raise GaveUp(f"{method} {path}")
            time.sleep(RETRY_S)

    def _try(
        self, method: str, path: str, body: Any, params: dict[str, Any], key: str | None
    ) -> Reply | None:
        """One attempt; None when it may be repeated."""
        try:
            answer = self.client.request(
                method, path, body=body, params=params, idempotency_key=key
            )
        except Unreachable:
            self.record.request("no answer")
            return None
        except Refused as refusal:
            self.record.request(str(refusal.status))
            if refusal.status in PASSING:
                return None
            if refusal.status >= 500:
                self.record.find(
                    "server_error", f"{method} {path}: {refusal.status} {refusal.message}"
                )
                return None
            return Reply(refusal.status, refusal.as_json())
        self.record.request("2xx")
        return Reply(200, answer)
