"""The outermost door: request ids, foreign hosts, oversized bodies, a last answer for crashes."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import check_host
from api.errors import error_answer, refusal_answer
from api.services import Services
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.ids import new_id

log = logging.getLogger("holdfast.api")

BODY_BYTES_MAX = 1024 * 1024
_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:-]{1,128}$")
TOO_LARGE = "a request body has at most 1 MiB"
STOPPING = "the server is stopping; the same request may be repeated"
# An export may be long; everything else has the one limit.
IMPORT_PATH = "/api/v1/sessions/import"
IMPORT_BYTES_MAX = 64 * 1024 * 1024
# Any text is a valid query there, so what cannot be looked for is a space.
SEARCH_PATH = "/api/v1/search"


class Gateway:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or socket."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        began = time.perf_counter()
        answer = Answering(send, request_id)
        try:
            refused = self._refused(scope)
            if refused is not None:
                await refused(scope, receive, answer.send)
            else:
                await self.app(scope, _Bounded(receive, _limit(scope)).receive, answer.send)
        except HTTPException as error:
            await self._late(
                scope, receive, answer, error_answer(413, "payload_too_large", str(error.detail))
            )
        except ClientDisconnect:
            log.info("%s %s: the client went away", scope["method"], scope["path"])
        except asyncio.CancelledError:
            # The server stops: whether the command took effect is not known yet.
            if answer.status != 0:
                raise
            await refusal_answer(Unavailable(STOPPING))(scope, receive, answer.send)
        except Refusal as refusal:
            # Outside of the routes: the database fell silent before a key's owner was known.
            await self._late(scope, receive, answer, refusal_answer(refusal))
        except Exception as error:
            log.error(
                "%s %s crashed (%s)", scope["method"], scope["path"], request_id, exc_info=error
            )
            words = "something broke on our side; it is in the log"
            await self._late(scope, receive, answer, error_answer(500, "internal", words))
        self.services.metrics.requests.labels(scope["method"], str(answer.status)).inc()
        self.services.metrics.seconds.observe(time.perf_counter() - began)

    async def _late(self, scope: Scope, receive: Receive, answer: Answering, response: Any) -> None:
        if answer.status == 0:
            await response(scope, receive, answer.send)

    def _refused(self, scope: Scope) -> Any:
        try:
            check_host(self.services, HTTPConnection(scope))
        except Refusal as refusal:
            return refusal_answer(refusal)
        if scope["path"] == SEARCH_PATH:
            scope["query_string"] = scope["query_string"].replace(b"%00", b"%20")
        if b"%00" in scope.get("raw_path", b"") or b"%00" in scope["query_string"]:
            return error_answer(400, "bad_request", "an address has no NUL in it")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdigit() or int(length) > _limit(scope):
            # The rest is never read, so the connection cannot be used again.
            close = {"Connection": "close"}
            return error_answer(413, "payload_too_large", TOO_LARGE, headers=close)
        return None


class Answering:
    """Puts the request's id on the answer and remembers its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        """Pass one ASGI message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


class _Bounded:
    """A body without a length is counted as it comes."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes > self._limit:
                raise HTTPException(413, TOO_LARGE)
        return message


def _limit(scope: Scope) -> int:
    importing = scope["path"] == IMPORT_PATH and scope["method"] == "POST"
    return IMPORT_BYTES_MAX if importing else BODY_BYTES_MAX


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.match(given) else new_id()
