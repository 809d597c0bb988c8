"""Every error answers in one shape; FastAPI's own bodies never show."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from api.openapi import described
from holdfast.domain.errors import Conflict, Gone, Refusal, ValidationFailed
from holdfast.storage.database.trouble import UnstorableValue

log = logging.getLogger("holdfast.api")
T = TypeVar("T")

CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "bad_request",
    408: "bad_request",
    409: "conflict",
    410: "gone",
    413: "payload_too_large",
    422: "dsl_invalid",
    429: "rate_limited",
    431: "bad_request",
    500: "internal",
    502: "provider_unreachable",
    503: "unavailable",
}
ERRORS_SHOWN_MAX = 20


class ErrorDetail(BaseModel):
    """What went wrong, for programs (`code`) and people (`message`)."""

    code: str
    message: str
    details: Any = None


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorDetail


def error_body(code: str, message: str, details: Any = None) -> dict[str, Any]:
    """The one shape."""
    error: dict[str, Any] = {"code": code, "message": message}
    if details is not None:
        error["details"] = details
    return {"error": error}


def error_answer(
    status: int, code: str, message: str, details: Any = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """The one shape as a response."""
    return JSONResponse(error_body(code, message, details), status_code=status, headers=headers)


def refusal_answer(refusal: Refusal) -> JSONResponse:
    """A refusal as a response."""
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
    if refusal.status in (429, 503):
        headers = {"Retry-After": "1"}
    details = refusal.details
    if refusal.code == "validation_failed":
        # Whoever reads `details.errors` finds it there, whichever layer found the fault.
        details = {"errors": [{"loc": [], "message": refusal.message, "type": "value_error"}]} | (
            details or {}
        )
    return error_answer(refusal.status, refusal.code, refusal.message, details, headers=headers)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error answers for a route's OpenAPI entry."""
    return {
        status: {
            "description": CODES[status].replace("_", " "),
            "content": {"application/json": {"schema": described(ErrorBody)}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Let the app answer in the one shape, whatever happens."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(UnstorableValue, _unstorable)
    app.add_exception_handler(Exception, _crashed)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refusal_answer(error)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        {
            "loc": [str(step) for step in problem["loc"]],
            "message": problem["msg"],
            "type": problem["type"],
        }
        for problem in error.errors()[:ERRORS_SHOWN_MAX]
    ]
    first = problems[0] if problems else {"loc": [], "message": "invalid"}
    message = f"{'.'.join(first['loc'])}: {first['message']}"
    return error_answer(400, "validation_failed", message, {"errors": problems})


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    headers = dict(error.headers) if error.headers else None
    return error_answer(error.status_code, code, str(error.detail), headers=headers)


async def _unstorable(_request: Request, _error: Exception) -> Response:
    return refusal_answer(ValidationFailed("a value cannot be stored as it is"))


async def _crashed(request: Request, error: Exception) -> Response:
    log.error("%s %s crashed", request.method, request.url.path, exc_info=error)
    return error_answer(500, "internal", "something broke on our side; it is in the log")


async def gone_as_conflict(answer: Awaitable[T]) -> T:
    """For commands that a session which is over refuses like any other wrong state."""
    try:
        return await answer
    except Gone as refusal:
        raise Conflict(refusal.message, refusal.details) from None
