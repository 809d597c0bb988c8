"""Runs the API until SIGTERM: one process, one event loop."""

from __future__ import annotations

import logging
import resource

import uvicorn

from api.app import create_app
from api.http_protocol import BoundedConfig, HttpProtocol, limits_of
from api.services import Services, make_services
from api.stream.protocol import SocketProtocol
from holdfast.settings.config import load_config
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import open_store
from holdfast.storage.database.patience import open_patiently
from holdfast.storage.database.postgres import PostgresOptions
from holdfast.storage.projects import operators, quotas

SOCKET_FRAME_BYTES_MAX = 1024 * 1024 + 64 * 1024
PING_S = 15.0
GRACE_S = 2
OTHER_FILES = 512


def run(settings: Settings) -> None:
    """Serve at `settings.bind` until asked to stop."""
    config = load_config(settings.home)
    logging.basicConfig(
        level=config.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    store = open_patiently(
        lambda: open_store(
            settings.database_url,
            settings.home,
            blobs_url=settings.blobs_url,
            synchronous=config.server.synchronous,
            postgres=PostgresOptions.of(settings),
        )
    )
    try:
        limit = config.limits.running_sessions_per_operator
        store.write(lambda db: operators.set_default_limit(db, limit))
        kept: dict[quotas.Kind, int] = {
            "sessions": config.limits.sessions_per_operator,
            "projects": config.limits.projects_per_operator,
            "aliases": config.limits.aliases_per_operator,
        }
        store.write(lambda db: quotas.set_limits(db, kept))
        _raise_open_files(config.server.connections)
        server(make_services(settings, store)).run()
    finally:
        store.close()


def _raise_open_files(connections: int) -> None:
    """Room for that many connections, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def server(services: Services) -> uvicorn.Server:
    """The server, not yet running."""
    settings = services.settings
    presented = services.configuration.current.server
    config = BoundedConfig(
        create_app(services),
        limits=limits_of(presented),
        host=settings.bind_host,
        port=settings.bind_port,
        loop="uvloop",
        http=HttpProtocol,
        ws=SocketProtocol,
        ws_max_size=SOCKET_FRAME_BYTES_MAX,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE_S,
        access_log=False,
        log_config=None,
        # Nobody is believed to be a proxy unless config.toml says so.
        proxy_headers=bool(presented.trusted_proxies),
        forwarded_allow_ips=presented.trusted_proxies,
        server_header=False,
        date_header=True,
    )
    return uvicorn.Server(config)
