"""What was purged or cleared leaves the tables of the search index, not only its answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.tables_history import PtyTranscript
from holdfast.storage.search import indexer
from holdfast.storage.search.index import index_of
from holdfast.storage.upkeep import removal
from tests.support.workflow_double import WorkflowDouble

_TABLES = {
    True: (
        "SELECT rowid FROM search_words WHERE search_words MATCH 'wombat'",
        "SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH 'wom AND omb AND bat'",
    ),
    False: (
        "SELECT document FROM search_documents WHERE words LIKE '%wombat%'",
        "SELECT document FROM search_documents WHERE folded LIKE '%wombat%'",
        "SELECT document FROM search_documents WHERE vector @@ 'wombat'::tsquery",
    ),
}


def filed(store: Store) -> list[int]:
    """How many texts with the word `wombat` each table of the index holds."""

    def count(db: Db) -> list[int]:
        asked = [db.connection().execute(text(query)) for query in _TABLES[store.is_sqlite]]
        return [len(rows.all()) for rows in asked]

    return store.read(count)


def all_filed(store: Store, count: int) -> bool:
    return set(filed(store)) == {count}


@pytest.fixture
def workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def add_transcript(workflow: WorkflowDouble, session_id: str) -> None:
    transcript = PtyTranscript(
        id=new_id(), session_id=session_id, pty_id=new_id(), transcript="sha256:0", text="a wombat"
    )
    workflow.store.write(lambda db: db.add(transcript))


@pytest.mark.req("H-011", "H-042")
def test_the_words_of_a_purged_session_leave_every_table_of_the_index(
    workflow: WorkflowDouble,
) -> None:
    session, other = workflow.session(), workflow.session()
    workflow.run(session, "wombat one")
    add_transcript(workflow, session)
    workflow.run(other, "wombat two")
    indexer.catch_up(workflow.store)
    assert all_filed(workflow.store, 3)
    removal.purge(workflow.opened, session)
    assert all_filed(workflow.store, 1)
    assert indexer.catch_up(workflow.store).behind == 0
    assert all_filed(workflow.store, 1)


@pytest.mark.req("H-041")
def test_the_words_of_a_cleared_session_leave_every_table_of_the_index(
    workflow: WorkflowDouble,
) -> None:
    session = workflow.session()
    workflow.run(session, "wombat one")
    indexer.catch_up(workflow.store)
    assert all_filed(workflow.store, 1)
    removal.clear_messages(workflow.opened, session, workflow.operator_id)
    assert all_filed(workflow.store, 0)


@pytest.mark.req("H-042")
def test_what_a_purge_keeps_for_forks_is_not_indexed_again(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.run(source, "wombat one")
    fork = workflow.fork(source)
    indexer.catch_up(workflow.store)
    removal.purge(workflow.opened, source)
    assert workflow.texts(fork) == ["wombat one", "done"]
    for _ in range(2):
        # The kept messages are the newest: they do not count as missing either.
        assert indexer.catch_up(workflow.store).state == "ready"
        assert all_filed(workflow.store, 0)
        indexer.reset(workflow.store)
    workflow.run(fork, "wombat two")
    assert indexer.catch_up(workflow.store).behind == 0
    assert all_filed(workflow.store, 1)


@pytest.mark.req("H-042")
def test_a_purge_throws_a_damaged_index_away_with_the_words_in_it(
    workflow: WorkflowDouble,
) -> None:
    session, other = workflow.session(), workflow.session()
    workflow.run(session, "wombat one")
    workflow.run(other, "wombat two")
    indexer.catch_up(workflow.store)
    harm = text("DROP TABLE search_transcripts")
    workflow.store.write(lambda db: db.connection().execute(harm) and None)
    removal.purge(workflow.opened, session)
    assert all_filed(workflow.store, 0)
    assert len(workflow.found("wombat")) == 1
    assert all_filed(workflow.store, 1)


@pytest.mark.req("H-042")
def test_an_indexer_at_work_cannot_write_purged_words_back(
    postgres_store: OpenStore, postgres_url: str, tmp_path: Path
) -> None:
    workflow = WorkflowDouble(postgres_store)
    session = workflow.session()
    indexer.catch_up(postgres_store)
    workflow.run(session, "wombat one")
    indexing, purged = threading.Event(), threading.Event()
    other = open_store(postgres_url, tmp_path / "home-of-the-indexer")

    def index(db: Db) -> None:
        indexer._batch(db, index_of(other), None)
        indexing.set()
        # Its transaction is open until the purge waits for it, or is over.
        while not purged.is_set() and not waiting(postgres_store):
            purged.wait(0.02)

    def purge() -> None:
        removal.purge(postgres_store, session)
        purged.set()

    threads = [threading.Thread(target=other.write, args=(index,)), threading.Thread(target=purge)]
    threads[0].start()
    assert indexing.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join(30)
    other.close()
    assert purged.is_set()
    assert all_filed(postgres_store, 0)


def waiting(store: Store) -> bool:
    """Whether somebody waits for a lock of this kind."""
    asked = text(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return store.read(lambda db: db.connection().execute(asked).first() is not None)
