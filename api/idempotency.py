"""Idempotency-Key: the same key acts once and is answered alike, also after a crash."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import identified
from api.errors import error_answer, refusal_answer
from api.gateway import BODY_BYTES_MAX
from api.services import Services
from holdfast.domain.canonical import sha256
from holdfast.domain.errors import HostIsAway, Refusal
from holdfast.storage.projects import idempotency

_KEY = re.compile(r"^[\x21-\x7e]{1,255}$")
# An answer that says "try again" is not the answer of the act.
_NOT_KEPT = frozenset({401, 403, 429})
REPLAYED = "Idempotency-Replayed"


class Idempotency:
    """Middleware: routes find the act's command id in `request.state.command_id`."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self.app = app
        self.services = services
        self._locks: dict[tuple[str, str], _Lock] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        key = Headers(scope=scope).get("idempotency-key") if scope["type"] == "http" else None
        if key is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if not _KEY.match(key):
            words = "an Idempotency-Key has 1 to 255 visible ASCII characters"
            await error_answer(400, "bad_request", words)(scope, receive, send)
            return
        identity = await identified(self.services, HTTPConnection(scope))
        if identity is None:
            await self.app(scope, receive, send)
            return
        body = await _read(receive)
        async with self._alone(identity.operator.id, key):
            answer = await self._answer(scope, identity.operator.id, key, body)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, operator_id: str, key: str, body: bytes) -> Response:
        store = self.services.store
        request_hash = _hash(scope, body)
        try:
            reserved = await store.awrite(
                lambda db: idempotency.reserve(db, operator_id, key, request_hash)
            )
        except Refusal as refusal:
            return refusal_answer(refusal)
        if reserved.status is not None:
            return _rebuild(reserved.status, reserved.body or "")
        scope["state"]["command_id"] = reserved.command_id
        taken = _Taken(body)
        await self.app(scope, taken.receive, taken.send)
        if taken.status < 500 and taken.status not in _NOT_KEPT:
            # Kept before it is sent: an answer that somebody saw is the answer for ever.
            await store.awrite(
                lambda db: idempotency.answer(
                    db, operator_id, key, status=taken.status, body=taken.text()
                )
            )
        elif taken.error_code() == HostIsAway.code:
            # The session's workflow answers a command once, with this refusal for ever.
            await store.awrite(lambda db: idempotency.renew(db, operator_id, key))
        return taken.response()

    @asynccontextmanager
    async def _alone(self, operator_id: str, key: str) -> AsyncIterator[None]:
        name = (operator_id, key)
        lock = self._locks.setdefault(name, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if lock.users == 0:
                self._locks.pop(name, None)


class _Lock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Taken:
    """Plays the client towards the application, and keeps what it answers."""

    def __init__(self, body: bytes) -> None:
        self._request = body
        self._given = False
        self.status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()

    async def receive(self) -> Message:
        if self._given:
            return {"type": "http.disconnect"}
        self._given = True
        return {"type": "http.request", "body": self._request, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    def text(self) -> str:
        kind = dict(self._headers).get(b"content-type", b"application/json").decode("latin-1")
        return json.dumps({"type": kind, "body": self._body.decode("utf-8", "replace")})

    def error_code(self) -> str | None:
        """The code of an answer that is an error; None of any other."""
        if self.status < 400:
            return None
        try:
            return str(json.loads(self._body)["error"]["code"])
        except (ValueError, KeyError, TypeError):
            return None

    def response(self) -> Response:
        response = Response(bytes(self._body), status_code=self.status)
        response.raw_headers = self._headers
        return response


def _rebuild(status: int, kept: str) -> Response:
    answer: dict[str, Any] = json.loads(kept)
    return Response(
        answer["body"].encode(),
        status_code=status,
        headers={"Content-Type": answer["type"], REPLAYED: "true"},
    )


def _hash(scope: Scope, body: bytes) -> str:
    address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}\n"
    return sha256(address.encode("utf-8", "surrogatepass") + body)


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client went away")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413, "a request body has at most 1 MiB")
        if not message.get("more_body", False):
            return bytes(body)
