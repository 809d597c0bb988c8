"""An index that is dropped, damaged or of another version: writes go on, and search mends it."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.trouble import StoreBusy
from holdfast.storage.search import finder, indexer
from holdfast.storage.search.indexer import Progress, catch_up, progress, reset
from tests.support.local_worker import until
from tests.support.sample_library import SampleLibrary


def execute(store: OpenStore, *statements: str) -> None:
    """Do harm."""
    store.write(lambda db: [db.connection().execute(text(each)) for each in statements] and None)


HARMS = (
    "DROP TABLE search_words",
    "DROP TABLE search_words_data",
    "DROP TABLE search_words_config",
    "DELETE FROM search_words_data WHERE id > 10",
    "DELETE FROM search_words_data",
    "DROP TABLE search_transcripts",
    "DROP TABLE search_state",
    "UPDATE search_state SET value = 0 WHERE key = 'version'",
)


@pytest.mark.req("H-013", "F-001")
def test_a_damaged_index_is_built_anew_by_the_next_search(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    said = {library.say(session, "needle").id}
    for harm in HARMS:
        assert library.found("needle") == said
        execute(sqlite_store, harm)
        said.add(library.say(session, "needle").id)
        assert library.found("needle") == said, harm
        assert progress(sqlite_store).state == "ready", harm


def test_a_damaged_index_is_built_anew_on_postgres(shared_postgres_store: OpenStore) -> None:
    library = SampleLibrary(shared_postgres_store)
    first = library.say(library.session(), "needle one")
    for name in ("search_documents", "search_state", "search_transcripts"):
        assert library.found("needle") == {first.id}
        execute(shared_postgres_store, f"DROP TABLE {name}")
    assert library.found("needle") == {first.id}


@pytest.mark.req("F-005")
def test_a_half_built_index_says_so(
    library: SampleLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = library.session()
    catch_up(library.store)
    monkeypatch.setattr(indexer, "BATCH_MESSAGES_MAX", 2)
    for number in range(7):
        library.say(session, f"needle {number}")
    monkeypatch.setattr(finder, "catch_up", lambda store: catch_up(store, budget_s=-1.0))
    answer = library.search("needle")
    assert not answer.complete
    assert len(answer.items) == 2
    assert answer.index["state"] == "building"
    assert answer.index["behind"] == 5
    monkeypatch.undo()
    assert len(library.search("needle").items) == 7


def test_a_busy_store_still_answers_from_what_is_indexed(
    library: SampleLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = library.session()
    known = library.say(session, "needle")
    assert library.found("needle") == {known.id}
    library.say(session, "needle")

    def busy(_store: object) -> Progress:
        raise StoreBusy("busy")

    monkeypatch.setattr(finder, "catch_up", busy)
    answer = library.search("needle")
    assert [item["id"] for item in answer.items] == [known.id]
    assert not answer.complete


def test_an_index_that_cannot_be_built_is_an_answer_and_not_an_error(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SampleLibrary(sqlite_store)
    library.say(library.session(), "needle")
    library.search("needle")
    execute(sqlite_store, "DROP TABLE search_words")
    monkeypatch.setattr(finder, "reset", lambda store: None)
    answer = library.search("needle")
    assert answer.items == []
    assert not answer.complete
    assert answer.index["state"] == "damaged"


def test_reset_begins_an_empty_index(library: SampleLibrary) -> None:
    library.say(library.session(), "needle")
    assert catch_up(library.store).state == "ready"
    reset(library.store)
    assert progress(library.store).state == "building"
    assert len(library.found("needle")) == 1


async def test_the_indexer_keeps_up_and_mends(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "PAUSE_MIN_S", 0.01)
    monkeypatch.setattr(indexer, "PAUSE_MAX_S", 0.02)
    library = SampleLibrary(sqlite_store)
    session = library.session()
    task = asyncio.create_task(indexer.keep_indexed(sqlite_store))

    async def caught_up() -> None:
        await until(lambda: progress(sqlite_store).behind == 0, "the indexer to catch up")

    library.say(session, "needle")
    await caught_up()
    execute(sqlite_store, "DROP TABLE search_trigrams")
    library.say(session, "needle")
    await caught_up()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(library.found("needle")) == 2


def test_an_index_that_was_reset_is_filled_in_order(
    library: SampleLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "BATCH_MESSAGES_MAX", 3)
    monkeypatch.setattr(indexer, "SETTLED_AFTER_MS", -1_000)
    session = library.session()
    said = {library.say(session, f"needle {number}").id for number in range(10)}
    assert library.found("needle") == said
    said.add(library.say(session, "needle again").id)
    assert library.found("needle") == said
    assert progress(library.store).behind == 0
