"""The store's folder: all there is, moved as a whole, brought up to date, closed without a loss."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, inspect, select, text
from sqlmodel import SQLModel

from holdfast.storage.database import opening
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.opening import (
    KNOWN_REVISIONS,
    MIGRATIONS,
    REVISION,
    OpenStore,
    open_store,
)
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import Operator, SessionRow, SubagentInvocation
from holdfast.storage.database.tables_history import Head
from holdfast.storage.moves import heads
from holdfast.storage.sessions import messages
from tests.support.workflow_double import WorkflowDouble

DATABASE = "holdfast.sqlite"


def upgrade(store: Store, revision: str) -> None:
    """Bring a store up to a revision of the chain and no further."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.writer.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def revision_of(store: Store) -> str | None:
    with store.reader.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


@pytest.fixture
def bare(tmp_path: Path) -> OpenStore:
    """A database without a table."""
    return OpenStore(f"sqlite:///{tmp_path / DATABASE}", tmp_path, synchronous="OFF")


@pytest.mark.req("F-001", "F-002", "F-003", "F-004")
def test_the_database_and_the_blobs_are_all_that_a_session_needs(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    head = workflow.run(session, "needle")
    workflow.run(session, "straw")
    assert len(workflow.found("needle")) == 1
    home, elsewhere = sqlite_store.home, tmp_path / "elsewhere"
    others = {path.name for path in home.iterdir() if not path.name.startswith(DATABASE)}
    assert others - {"migrate.lock"} == {"blobs"}, "a session has no folder of its own"

    elsewhere.mkdir()
    for name in (DATABASE, f"{DATABASE}-wal"):
        shutil.copy(home / name, elsewhere / name)
    shutil.copytree(home / "blobs", elsewhere / "blobs")
    moved = open_store(None, elsewhere, synchronous="OFF")
    try:
        there = WorkflowDouble(moved)
        moved.write(lambda db: db.connection().execute(text("DROP TABLE search_words")) and None)
        assert there.texts(session) == workflow.texts(session)
        assert there.head(head) == workflow.head(head)
        assert moved.read(lambda db: heads.get(db, session, head)).session_id == session
        assert there.state(head) == workflow.state(head)
        assert there.texts(there.fork(session, head_id=head)) == ["needle", "done"]
        assert there.found("needle") == workflow.found("needle"), "the index is made again"
    finally:
        moved.close()


@pytest.mark.req("H-015")
def test_an_older_store_gets_what_it_lacks_and_keeps_what_it_has(
    bare: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(bare, "0001")
    known = Operator(id="one", name="alice")
    bare.write(lambda db: insert_once(db, Operator, known.model_dump()))
    assert not inspect(bare.reader).has_table("compactions")
    bare.close()

    opened = open_store(None, tmp_path, synchronous="OFF")
    with opened.reader.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        differences = compare_metadata(context, SQLModel.metadata)
    found = opened.read(lambda db: db.get(Operator, "one"))
    opened.close()
    assert differences == []
    assert found is not None
    assert found.name == "alice"
    assert (tmp_path / f"{DATABASE}.before-{REVISION}-from-0001").exists()

    def again(_: Store) -> None:
        raise AssertionError("a store that is current is not migrated")

    monkeypatch.setattr(opening, "_migrate", again)
    open_store(None, tmp_path, synchronous="OFF").close()


@pytest.mark.req("H-016")
def test_each_part_of_the_chain_leaves_its_number(bare: OpenStore) -> None:
    schemas = set()
    for revision in KNOWN_REVISIONS:
        upgrade(bare, revision)
        assert revision_of(bare) == revision
        with bare.reader.connect() as connection:
            schemas.add(tuple(connection.execute(text("SELECT sql FROM sqlite_master")).scalars()))
    assert revision_of(bare) == REVISION
    assert len(schemas) == len(KNOWN_REVISIONS), "every part has work of its own"
    upgrade(bare, "0001")
    assert revision_of(bare) == REVISION, "no part is done twice"
    bare.close()


@pytest.mark.req("K-098")
async def test_closing_waits_for_every_write_that_was_asked_for(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    closing = open_store(None, sqlite_store.home, synchronous="OFF")
    texts = [f"message {number}" for number in range(40)]

    def say(content: str, db: Db) -> None:
        messages.append(db, session, role="operator", content=content)

    asked = [asyncio.create_task(closing.awrite(partial(say, words))) for words in texts]
    await asyncio.sleep(0)  # every task has handed its write over
    await asyncio.to_thread(closing.close)
    assert workflow.texts(session) == texts
    await asyncio.gather(*asked)


@pytest.mark.req("F-009", "F-013")
def test_heads_sessions_and_subagents_of_an_older_store_get_the_new_facts(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    new = WorkflowDouble(sqlite_store)
    session_id = new.session()
    run_id = new.begin(session_id)
    new.subagent(session_id, run_id)
    new.pause(session_id)
    new.resume(session_id)
    new.finish(run_id)
    home = tmp_path / "old"
    home.mkdir()
    old = OpenStore(f"sqlite:///{home / DATABASE}", home, synchronous="OFF")
    upgrade(old, "0005")
    copy_rows(sqlite_store, old)
    old.close()
    opened = open_store(None, home, synchronous="OFF")
    try:
        for model in (SessionRow, Head):
            assert rows_of(opened, model) == rows_of(sqlite_store, model)
        [helper] = rows_of(opened, SubagentInvocation)
        assert (helper["type"], helper["callee_session"]) == ("subagent", session_id)
    finally:
        opened.close()


def copy_rows(source: Store, target: Store) -> None:
    """Every row, as far as the tables of the target have its columns."""
    old = MetaData()
    old.reflect(target.reader)
    with source.reader.connect() as reading, target.writer.begin() as writing:
        for place in old.sorted_tables:
            if place.name not in SQLModel.metadata.tables:
                continue
            columns = ", ".join(f'"{column.name}"' for column in place.columns)
            rows = reading.execute(text(f"SELECT {columns} FROM {place.name}")).all()
            if rows:
                writing.execute(place.insert(), [dict(row._mapping) for row in rows])


def rows_of(store: Store, model: type[SQLModel]) -> list[dict[str, Any]]:
    place = SQLModel.metadata.tables[str(model.__tablename__)]
    rows = select(place).order_by(place.c.id)
    return store.read(lambda db: [dict(row._mapping) for row in db.connection().execute(rows)])
