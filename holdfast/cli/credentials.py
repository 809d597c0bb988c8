"""Operators and tokens at hand: these read the database itself, so they work while all is down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.settings.environment import Settings, SettingsError
from holdfast.supervisor.launch import launch_file

if TYPE_CHECKING:
    from holdfast.storage.database.engine import Db
    from holdfast.storage.database.opening import OpenStore

DEFAULT_OPERATOR = "local"
# A person waits for a command; a part of the product waits for as long as it takes.
COMMAND_PATIENCE_S = 5.0


def prepare(settings: Settings, *, with_launch: bool) -> None:
    """Before the API serves: the default operator, its token file, and a launch token if wanted."""
    with _store(settings, patience_s=None) as store:
        _refuse_a_public_bind(settings, store)
        _local_token(settings, store)
        if with_launch:
            write_private(launch_file(settings.home), _launch_token(store, DEFAULT_OPERATOR))


def token_of_the_default_operator(settings: Settings) -> str:
    """The bearer token in the home, made when there is none that still counts."""
    with _store(settings) as store:
        return _local_token(settings, store)


def new_token(settings: Settings, name: str) -> str:
    """One more bearer token for an operator."""
    from holdfast.storage.projects import operators

    with _store(settings) as store:
        return store.write(lambda db: operators.issue_token(db, operators.by_name(db, name).id))


def new_launch_token(settings: Settings, name: str) -> str:
    """A token that signs one browser in, once and soon."""
    with _store(settings) as store:
        return _launch_token(store, name)


def add_operator(settings: Settings, name: str) -> tuple[str, str]:
    """A new operator: its id and its token."""
    from holdfast.storage.projects import operators

    def add(db: Db) -> tuple[str, str]:
        made = operators.add(db, name)
        return made.id, operators.issue_token(db, made.id)

    with _store(settings) as store:
        return store.write(add)


def list_operators(settings: Settings) -> list[dict[str, Any]]:
    """Every operator, without secrets."""
    from holdfast.storage.projects import operators

    with _store(settings) as store:
        found = store.read(operators.all_operators)
    return [
        {"id": one.id, "name": one.name, "disabled": one.disabled, "created_at": one.created_at}
        for one in found
    ]


def revoke(settings: Settings, name: str) -> int:
    """Shut an operator out: how many tokens were made worthless."""
    from holdfast.storage.projects import operators

    with _store(settings) as store:
        return store.write(lambda db: operators.revoke_all(db, operators.by_name(db, name).id))


def write_private(path: Path, text: str) -> None:
    """Replace the file as a whole, readable by its owner only."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    draft.replace(path)


def _local_token(settings: Settings, store: OpenStore) -> str:
    from holdfast.storage.projects import operators

    try:
        known = settings.token_file.read_text(encoding="utf-8").strip()
    except OSError:
        known = ""
    if known and store.read(lambda db: operators.authenticate(db, known)) is not None:
        return known
    token = store.write(lambda db: operators.issue_token(db, operators.ensure_default(db).id))
    write_private(settings.token_file, token)
    return token


def _launch_token(store: OpenStore, name: str) -> str:
    from holdfast.storage.projects import operators

    def issue(db: Db) -> str:
        if name == DEFAULT_OPERATOR:
            operators.ensure_default(db)
        return operators.issue_token(db, operators.by_name(db, name).id, kind="launch")

    return store.write(issue)


@contextmanager
def _store(
    settings: Settings, *, patience_s: float | None = COMMAND_PATIENCE_S
) -> Iterator[OpenStore]:
    from holdfast.storage.database.opening import open_store
    from holdfast.storage.database.patience import open_patiently
    from holdfast.storage.database.postgres import PostgresOptions

    settings.make_home()
    options = PostgresOptions.of(settings)
    store = open_patiently(
        lambda: open_store(settings.database_url, settings.home, postgres=options),
        patience_s=patience_s,
    )
    try:
        yield store
    finally:
        store.close()


def _refuse_a_public_bind(settings: Settings, store: OpenStore) -> None:
    from holdfast.storage.projects import operators

    if settings.bind_is_loopback:
        return
    names = [one.name for one in store.read(operators.all_operators)]
    if not any(name != DEFAULT_OPERATOR for name in names):
        raise SettingsError(
            f"HOLDFAST_BIND={settings.bind} is reachable from outside, and no operator is "
            "configured; add one with `holdfast operator add NAME`, or bind to 127.0.0.1"
        )
