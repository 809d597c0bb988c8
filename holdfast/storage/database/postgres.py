"""How a process connects to Postgres: the limits of each connection, and the way past a pooler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

if TYPE_CHECKING:
    import psycopg

POOL_SIZE = 10
STATEMENT_TIMEOUT_S = 120
# Shorter than the time a write may take in all, so that it is tried again.
LOCK_TIMEOUT_S = 10
# A process that is stopped in the middle of a transaction must not hold its locks for ever.
IDLE_IN_TRANSACTION_S = 60
# How long a caller waits for a connection of the pool.
POOL_WAIT_S = 10.0
# What a URL may say otherwise. A silent network is noticed within half a minute.
CONNECT_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "application_name": "holdfast",
}
_FIRST_WORDS = (
    "SELECT pg_backend_pid(), set_config('statement_timeout', %s, false),"
    " set_config('lock_timeout', %s, false),"
    " set_config('idle_in_transaction_session_timeout', %s, false)"
)


class Wanted(Protocol):
    """The settings of a process, as far as they are about its connections."""

    @property
    def database_listen_url(self) -> str:
        """Past a pooler."""

    @property
    def database_pool_size(self) -> int:
        """The most connections."""

    @property
    def database_statement_timeout_s(self) -> int:
        """The longest statement."""


@dataclass(frozen=True)
class PostgresOptions:
    """What the settings say about the connections of one process."""

    # Past a pooler, for LISTEN and migrations. Empty: where everything else goes.
    direct_url: str = ""
    pool_size: int = POOL_SIZE
    statement_timeout_s: int = STATEMENT_TIMEOUT_S

    @classmethod
    def of(cls, wanted: Wanted) -> PostgresOptions:
        """What these settings say."""
        return cls(
            wanted.database_listen_url,
            wanted.database_pool_size,
            wanted.database_statement_timeout_s,
        )


def normal_url(url: str) -> str:
    """The URL with the driver that we ship."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def pooled_engine(url: str, options: PostgresOptions, *, hide_parameters: bool) -> Engine:
    """At most `pool_size` connections; who finds none within ten seconds is told to come again.

    Connections are not probed before their use: that would double the transactions of an idle
    process. The store tries a transaction again whose connection broke.
    """
    engine = create_engine(
        normal_url(url),
        connect_args=_defaults_for(url),
        pool_size=options.pool_size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        hide_parameters=hide_parameters,
    )

    @event.listens_for(engine, "connect")
    def _begin(raw: psycopg.Connection[Any], _record: object) -> None:
        try:
            prepare(raw, statement_timeout_s=options.statement_timeout_s)
        except BaseException:
            raw.close()
            raise

    return engine


def direct_engine(url: str) -> Engine:
    """Connections that are closed after their use and have no time limits: for migrations."""
    return create_engine(normal_url(url), connect_args=_defaults_for(url), poolclass=NullPool)


def connect_directly(url: str) -> psycopg.Connection[Any]:
    """A connection of one's own that commits every statement."""
    # A process on SQLite never pays for this import.
    import psycopg  # noqa: PLC0415

    parts = make_url(normal_url(url)).set(drivername="postgresql")
    raw: psycopg.Connection[Any] = psycopg.connect(
        parts.render_as_string(hide_password=False), autocommit=True, **_defaults_for(url)
    )
    raw.prepare_threshold = None
    return raw


def prepare(raw: psycopg.Connection[Any], *, statement_timeout_s: int) -> None:
    """Set the time limits of a new connection, and see whether a pooler is in between.

    A pooler gives its client a number of its own in place of the server process's; behind one,
    prepared statements would be looked for on other server connections than they were made on.
    """
    limits = (statement_timeout_s, LOCK_TIMEOUT_S, IDLE_IN_TRANSACTION_S)
    with raw.cursor() as cursor:
        cursor.execute(_FIRST_WORDS, [f"{seconds}s" for seconds in limits])
        found = cursor.fetchone()
    raw.commit()
    if found is None or found[0] != raw.info.backend_pid:
        raw.prepare_threshold = None


def _defaults_for(url: str) -> dict[str, Any]:
    said = make_url(normal_url(url)).query
    return {name: value for name, value in CONNECT_DEFAULTS.items() if name not in said}
