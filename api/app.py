"""The application: routers, middleware and an OpenAPI document that is true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api import errors, openapi
from api.auth import FailedLogins
from api.gateway import Gateway
from api.idempotency import Idempotency
from api.routes import ROOT_ROUTERS, ROUTERS
from api.services import Services

PREFIX = "/api/v1"
EVERYWHERE = errors.documented(400, 401, 403, 413, 429, 503)


def create_app(services: Services) -> FastAPI:
    """The API over these services; its lifespan starts and stops what runs beside requests."""
    app = FastAPI(
        title="Holdfast",
        version="1",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.services = services
    app.state.failed_logins = FailedLogins(services.store)
    errors.install(app)
    for router in ROOT_ROUTERS:
        app.include_router(router)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX, responses=EVERYWHERE)
    app.add_middleware(Idempotency, services=services)
    app.add_middleware(Gateway, services=services)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    await services.hub.start()
    services.chats.start(services.commands)
    try:
        yield
    finally:
        await services.chats.stop()
        await services.hub.stop()
        await services.terminals.close()
        await services.temporal_ui.close()
        services.memories.close()
        services.feed.close()
