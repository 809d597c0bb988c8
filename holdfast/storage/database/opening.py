"""Opens the store: creates it, brings it up to date, or refuses with what to do."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError

from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Store
from holdfast.storage.database.file_blobs import FileBlobStore
from holdfast.storage.database.postgres import PostgresOptions, direct_engine
from holdfast.storage.database.s3_blobs import S3BlobStore
from holdfast.storage.database.sqlite_driver import version_warning
from holdfast.storage.database.trouble import StoreAway, StoreRefused, is_away, is_refusing

# The newest revision of the chain. A store at another one is migrated, a newer one refused.
REVISION = "0012"
KNOWN_REVISIONS = (*(f"{number:04}" for number in range(1, 11)), "0012")
MIGRATION_LOCK = 0x486F6C64
MIGRATIONS = Path(__file__).with_name("migrations")
# Every kind of blob store, by the scheme of its URL.
SCHEMES: dict[str, Callable[[str], BlobStore]] = {
    "file": FileBlobStore,
    "s3": S3BlobStore,
}


class OpenStore(Store):
    """A store that is up to date, with its blobs."""

    def __init__(
        self,
        url: str,
        home: Path,
        *,
        blobs_url: str | None = None,
        synchronous: str = "FULL",
        postgres: PostgresOptions | None = None,
    ) -> None:
        # Before the engines, which would have to be closed after a refusal.
        self.blobs = _blob_store(blobs_url or (home.absolute() / "blobs").as_uri())
        super().__init__(url, synchronous=synchronous, postgres=postgres)
        self.home = home

    def warnings(self) -> list[str]:
        """What the operator should know about what the store stands on."""
        warning = version_warning() if self.is_sqlite else None
        return [] if warning is None else [warning]


def open_store(
    database_url: str | None,
    home: Path,
    *,
    blobs_url: str | None = None,
    synchronous: str = "FULL",
    postgres: PostgresOptions | None = None,
) -> OpenStore:
    """The store in `home`, or at `database_url` and `blobs_url`, ready for use.

    StoreRefused says what to mend; StoreAway, that a database server does not answer now.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    url = database_url or f"sqlite:///{home / 'holdfast.sqlite'}"
    store = OpenStore(url, home, blobs_url=blobs_url, synchronous=synchronous, postgres=postgres)
    if store.is_sqlite:
        # Before the first connection, which would make it readable by everybody.
        Path(store.url.removeprefix("sqlite:///")).touch(mode=0o600)
    try:
        if _revision(store.reader) != REVISION:
            with _one_at_a_time(home):
                _bring_up_to_date(store, home)
    except DatabaseError as error:
        store.close()
        raise _in_words(error, store) from error
    except StoreRefused:
        store.close()
        raise
    return store


def _in_words(error: DatabaseError, store: Store) -> StoreAway | StoreRefused:
    if store.is_sqlite:
        return StoreRefused(
            f"the database cannot be read ({error.orig}). Put back a backup, or move it away"
            " to begin anew; sessions in it are lost then"
        )
    words = " ".join(str(error.orig).split())[:300]
    if is_away(error):
        return StoreAway(f"the database does not answer ({words})")
    if is_refusing(error):
        return StoreRefused(
            f"the database refuses us ({words}). Check HOLDFAST_DATABASE_URL and, if it is set,"
            " HOLDFAST_DATABASE_LISTEN_URL"
        )
    return StoreRefused(f"the database cannot be used ({words})")


def _blob_store(url: str) -> BlobStore:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise StoreRefused(f"HOLDFAST_BLOBS_URL must begin with {known}, not with {scheme}")
    return SCHEMES[scheme](url)


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    file = os.open(home / "migrate.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _bring_up_to_date(store: OpenStore, home: Path) -> None:
    if not store.is_sqlite:
        _migrate_postgres(store)
        return
    revision = _revision(store.reader)
    if revision != REVISION:
        _refuse_the_unknown(revision)
        if revision is not None:
            _back_up(Path(store.url.removeprefix("sqlite:///")), revision)
        with store.writer.connect() as connection:
            _migrate(connection)


def _migrate_postgres(store: OpenStore) -> None:
    """`migrate.lock` holds on one machine only; whoever waits here finds the work done.

    The lock lives as long as the migration's own transaction: a server process that a pooler gives
    to others afterwards keeps nothing of it.
    """
    engine = direct_engine(store.direct_url)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            revision = _revision_at(connection)
            if revision != REVISION:
                _refuse_the_unknown(revision)
                _migrate(connection)
    finally:
        engine.dispose()


def _refuse_the_unknown(revision: str | None) -> None:
    if revision is not None and revision not in KNOWN_REVISIONS:
        raise StoreRefused(
            f"the database is at revision {revision}, newer than this Holdfast knows"
            f" ({REVISION}). Install the newer Holdfast again"
        )


def _revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _revision_at(connection)


def _revision_at(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _back_up(path: Path, revision: str) -> None:
    """A copy beside the file, before its data is changed."""
    target = path.with_name(f"{path.name}.before-{REVISION}-from-{revision}")
    shutil.copy2(path, target)
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        shutil.copy2(wal, target.with_name(target.name + "-wal"))


def _migrate(connection: Connection) -> None:
    # Alembic takes 0.4 s to import, and a store that is current never needs it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()
