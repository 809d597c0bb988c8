"""Runs the API until SIGTERM: one process, one event loop."""

from __future__ import annotations

import logging

import uvicorn

from api.app import create_app
from api.services import Services, make_services
from api.stream.protocol import SocketProtocol
from holdfast.settings.config import load_config
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import open_store
from holdfast.storage.projects import operators

SOCKET_FRAME_BYTES_MAX = 1024 * 1024 + 64 * 1024
PING_S = 15.0
GRACE_S = 2


def run(settings: Settings) -> None:
    """Serve at `settings.bind` until asked to stop."""
    config = load_config(settings.home)
    logging.basicConfig(
        level=config.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    store = open_store(
        settings.database_url,
        settings.home,
        blobs_url=settings.blobs_url,
        synchronous=config.server.synchronous,
    )
    try:
        limit = config.limits.running_sessions_per_operator
        store.write(lambda db: operators.set_default_limit(db, limit))
        server(make_services(settings, store)).run()
    finally:
        store.close()


def server(services: Services) -> uvicorn.Server:
    """The server, not yet running."""
    settings = services.settings
    config = uvicorn.Config(
        create_app(services),
        host=settings.bind_host,
        port=settings.bind_port,
        loop="uvloop",
        http="httptools",
        ws=SocketProtocol,
        ws_max_size=SOCKET_FRAME_BYTES_MAX,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE_S,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
    )
    return uvicorn.Server(config)
