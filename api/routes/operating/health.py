"""What answers without a token: health, readiness, versions and the launch link."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse

from api import auth
from api.dependencies import ServicesDep
from api.errors import documented
from api.services import Services
from holdfast.domain.errors import Unauthenticated
from holdfast.storage.database.engine import ping
from holdfast.storage.database.opening import REVISION
from holdfast.storage.projects import operators
from holdfast.storage.sessions import attention, sessions

router = APIRouter()
READY_TIMEOUT_S = 5.0
THREADS_TIMEOUT_S = 2.0


@router.get("/healthz", tags=["health"])
async def healthz() -> dict[str, str]:
    """The process lives."""
    return {"status": "ok"}


@router.get("/readyz", tags=["health"], responses=documented(503))
async def readyz(services: ServicesDep) -> Response:
    """Store, Temporal and a worker answer, and a thread is free for whoever needs one."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            found = await _trouble(services)
    except TimeoutError:
        found = {"readiness": "no answer in time"}
    if found:
        message = "; ".join(f"{part}: {words}" for part, words in found.items())
        error = {"code": "unavailable", "message": message, "details": found}
        return JSONResponse({"error": error}, status_code=503)
    warnings = services.store.warnings()
    if services.feed.warning is not None:
        warnings.append(services.feed.warning)
    return JSONResponse({"status": "ready"} | ({"warnings": warnings} if warnings else {}))


@router.get("/api/v1/versions", tags=["health"])
async def versions() -> dict[str, Any]:
    """What runs here."""
    return {"holdfast": version("holdfast"), "api": ["v1"], "store_revision": REVISION}


@router.get("/launch", tags=["health"], status_code=303, responses=documented(400, 401, 429))
async def launch(
    token: Annotated[str, Query(min_length=1, max_length=256)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """Sign a browser in with a one-time token."""
    cookie = await services.store.awrite(lambda db: operators.redeem_launch(db, token))
    if cookie is None:
        logins: auth.FailedLogins = request.app.state.failed_logins
        await logins.count(auth.address_of(request))
        raise Unauthenticated("this link was used or has expired; `holdfast launch` prints another")
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        auth.COOKIE,
        cookie,
        max_age=operators.COOKIE_LIFE_MS // 1000,
        httponly=True,
        samesite="strict",
        secure=auth.secure_cookies(services, request),
        path="/",
    )
    return response


@router.get("/api/v1/metrics", include_in_schema=False)
@router.get(
    "/metrics", tags=["health"], response_class=PlainTextResponse, responses=documented(401)
)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Prometheus numbers; from outside this machine only with a token."""
    if not services.settings.bind_is_loopback:
        await auth.require(services, request)
    states = await services.store.aread(sessions.count_by_state)
    needs = await services.store.aread(attention.count_by_kind)
    text = services.metrics.text(states, needs)
    return Response(text, media_type="text/plain; version=0.0.4")


async def _trouble(services: Services) -> dict[str, str]:
    """What does not answer of all that a message needs, by part; empty when ready."""
    found: dict[str, str] = {}
    try:
        await services.store.aread(ping)
    except Exception as error:  # noqa: BLE001 - any failure of the store means not ready
        found["store"] = str(error)[:200]
    try:
        async with asyncio.timeout(THREADS_TIMEOUT_S):
            await asyncio.to_thread(lambda: None)
    except TimeoutError:
        found["threads"] = "none is free: something that is read or waited for does not answer"
    words = await services.temporal.trouble()
    if words is not None:
        found["temporal"] = words
    return found
