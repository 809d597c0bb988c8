"""Foreign keys in both databases: what names nothing is refused, an upgrade loses no row."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel
from structlog.testing import capture_logs

from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.opening import MIGRATIONS, OpenStore, open_store
from holdfast.storage.projects import operators
from holdfast.storage.sessions import sessions
from holdfast.storage.upkeep import consistency, removal
from tests.support.command_line import run_here
from tests.support.servers.api_server import ApiServer
from tests.support.stored_rows import add_named_rows, execute_unchecked
from tests.support.workflow_double import WorkflowDouble

KEYS = (
    ("sessions", "project_id", "projects"),
    ("sessions", "parent_session_id", "sessions"),
    ("sessions", "bound_issue", "issues"),
    ("messages", "session_id", "sessions"),
    ("runs", "session_id", "sessions"),
    ("subagent_invocations", "run_id", "runs"),
    ("tool_calls", "run_id", "runs"),
    ("checkpoints", "session_id", "sessions"),
    ("run_pty_transcripts", "run_id", "runs"),
    ("prompt_edits", "checkpoint_id", "checkpoints"),
)
# Opens the store named by its arguments and is killed before the statement that begins so.
KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import Engine, event
from holdfast.storage.database.opening import open_store

@event.listens_for(Engine, "before_cursor_execute")
def die(connection, cursor, statement, *rest):
    if statement.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

open_store(sys.argv[1], Path(sys.argv[2]))
"""


def fill(store: OpenStore) -> str:
    """One row and more of every table that names another; the id of their session."""
    workflow = WorkflowDouble(store)
    source = workflow.session()
    run_id = workflow.begin(source)
    workflow.call(source, run_id)
    workflow.subagent(source, run_id)
    made = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id)
    workflow.session(parent_session_id=source)
    store.write(lambda db: add_named_rows(db, made, workflow.project_id, run_id, transcript="blob"))
    return source


def columns_of(store: Store) -> dict[str, list[str]]:
    """Every table of ours that is there now, with the columns that it has now."""
    looked = inspect(store.reader)
    there = set(looked.get_table_names())
    return {
        name: sorted(column["name"] for column in looked.get_columns(name))
        for name in SQLModel.metadata.tables
        if name in there
    }


def everything(store: Store, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, as far as these columns go."""
    asked = {
        name: sa.select(sa.table(name, *(sa.column(column) for column in names)))
        for name, names in columns.items()
    }
    with store.reader.connect() as connection:
        return {
            name: sorted((tuple(row) for row in connection.execute(rows)), key=repr)
            for name, rows in asked.items()
        }


def keys_of(store: Store) -> set[tuple[str, str, str]]:
    looked = inspect(store.reader)
    return {
        (name, key["constrained_columns"][0], key["referred_table"])
        for name in looked.get_table_names()
        for key in looked.get_foreign_keys(name)
    }


def make_orphan(table: str, column: str) -> str:
    """The statement that lets one row of the table name what is not there."""
    one = f"SELECT min(id) FROM {table} WHERE {column} IS NOT NULL"
    return f"UPDATE {table} SET {column} = 'gone' WHERE id = ({one})"


def write(store: Store, statement: str) -> int:
    """How many rows the statement changed."""
    return store.write(lambda db: db.connection().execute(text(statement)).rowcount)


def administrators_token(db: Db) -> str:
    """A token of the operator who is told of everybody's rows."""
    return operators.issue_token(db, operators.add(db, operators.DEFAULT_OPERATOR).id)


@pytest.fixture
def old_store(either_store: OpenStore) -> OpenStore:
    """A filled store of the version without keys; each table has one row that names nothing."""
    fill(either_store)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with either_store.writer.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
        connection.commit()
    assert keys_of(either_store) == set()
    for table, column, _ in KEYS:
        write(either_store, make_orphan(table, column))
    return either_store


@pytest.mark.req("H-006", "H-008", "K-101", "K-113")
def test_both_databases_have_the_keys_of_the_schema(either_store: OpenStore) -> None:
    assert keys_of(either_store) == set(KEYS)
    if either_store.is_sqlite:
        for engine in (either_store.writer, either_store.reader):
            with engine.connect() as connection:
                assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1


@pytest.mark.req("H-006", "H-008", "K-101", "K-113")
def test_a_row_that_names_what_is_missing_is_refused(either_store: OpenStore) -> None:
    fill(either_store)
    columns = columns_of(either_store)
    before = everything(either_store, columns)
    for table, column, _ in KEYS:
        with pytest.raises(IntegrityError):
            write(either_store, make_orphan(table, column))
    assert everything(either_store, columns) == before


@pytest.mark.req("H-006", "K-101")
def test_a_purged_session_leaves_no_child_that_names_it(either_store: OpenStore) -> None:
    workflow = WorkflowDouble(either_store)
    parent = workflow.session()
    workflow.run(parent)
    child = workflow.session(parent_session_id=parent)
    removal.purge(either_store, parent)
    assert either_store.read(lambda db: sessions.get(db, child)).parent_session_id is None
    assert consistency.check(either_store).issues == []


@pytest.mark.req("K-101", "H-015", "H-016")
def test_an_upgrade_keeps_every_row_and_tells_of_those_that_name_nothing(
    old_store: OpenStore,
) -> None:
    columns = columns_of(old_store)
    before = everything(old_store, columns)
    with capture_logs() as logs:
        opened = open_store(old_store.url, old_store.home)
    try:
        assert everything(opened, columns) == before
        assert keys_of(opened) == set(KEYS)
        told = [line for line in logs if line["event"] == "migration.orphans_kept"]
        assert {(line["table"], line["column"], line["target"]) for line in told} == set(KEYS)
        assert {line["log_level"] for line in told} == {"warning"}
        assert [line["rows"] for line in told] == [1] * len(KEYS)
        report = consistency.check(opened, "quick").view()
        words = [kind["words"] for kind in report["dangling"]]
        for table, column, target in KEYS:
            assert (
                f"1 row of {table} names a row of {target} that is missing ({column});"
                " kept as it is"
            ) in words
        # An orphan can be changed and removed, but no further one made.
        write(opened, "UPDATE runs SET steps = 7")
        with pytest.raises(IntegrityError):
            write(opened, "UPDATE runs SET session_id = 'gone again'")
    finally:
        opened.close()


@pytest.mark.req("K-101", "F-037")
def test_the_doctor_tells_of_the_rows_that_an_upgrade_kept(
    old_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_store(old_store.url, old_store.home)
    served = ApiServer(opened, tmp_path / "served").start()
    try:
        monkeypatch.setenv("HOLDFAST_URL", served.url)
        monkeypatch.setenv("HOLDFAST_TOKEN", opened.write(administrators_token))
        code, out, _ = run_here("doctor")
    finally:
        served.stop()
        opened.close()
    assert code == 1
    for table, column, target in KEYS:
        said = f"1 row of {table} names a row of {target} that is missing ({column})"
        assert f"{said}; kept as it is" in out.splitlines()


@pytest.mark.req("K-101")
def test_postgres_trusts_a_key_once_no_row_breaks_it(postgres_store: OpenStore) -> None:
    unsure = text("SELECT conname FROM pg_constraint WHERE contype = 'f' AND NOT convalidated")
    with postgres_store.reader.connect() as connection:
        assert connection.execute(unsure).scalars().all() == []


@pytest.mark.req("K-101", "H-016")
def test_an_upgrade_that_is_killed_begins_again(old_store: OpenStore) -> None:
    columns = columns_of(old_store)
    before = everything(old_store, columns)
    sqlite = old_store.is_sqlite
    last = "PRAGMA integrity_check(prompt_edits)" if sqlite else "ALTER TABLE prompt_edits"
    arguments = [sys.executable, "-c", KILLED, old_store.url, str(old_store.home), last]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert keys_of(old_store) == set()
    assert everything(old_store, columns) == before
    opened = open_store(old_store.url, old_store.home)
    try:
        assert keys_of(opened) == set(KEYS)
        assert everything(opened, columns) == before
    finally:
        opened.close()


def test_an_orphan_is_made_only_behind_the_keys_back(either_store: OpenStore) -> None:
    fill(either_store)
    execute_unchecked(either_store, make_orphan("messages", "session_id"))
    kinds = {kind["type"] for kind in consistency.check(either_store, "quick").view()["dangling"]}
    assert "message-session-missing" in kinds
