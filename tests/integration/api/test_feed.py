"""The feed wakes those who wait, and only them; leases and views on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import pytest

from holdfast.domain.errors import ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.log import events, frames
from holdfast.storage.log.feed import ANY, Feed
from holdfast.storage.log.news import News
from holdfast.storage.projects import operators
from holdfast.storage.sessions import leases, running_counts, session_views, sessions
from holdfast.storage.sessions.session_views import Filter, SessionShown


def make_project(db: Db) -> None:
    project = Project(id="p", created_by="o", name="p", path="/tmp", dsl_hash="h")
    insert_once(db, Project, project.model_dump())


def make_session(store: OpenStore, operator_id: str = "o") -> str:
    row = SessionRow(
        id=new_id(),
        project_id="p",
        created_by=operator_id,
        working_directory="/tmp",
        dsl_hash="h",
    )
    store.write(make_project)
    return store.write(lambda db: sessions.create(db, row).id)


class RecordingFeed(Feed):
    """Remembers for whom it rang."""

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self.rung: list[str] = []

    def ring(self, keys: Iterable[str], news: Mapping[str, News] = {}) -> None:
        chosen = list(keys)
        self.rung += chosen
        super().ring(chosen, news)


async def until(condition: Callable[[], bool]) -> None:
    """Until the condition holds; the test's timeout ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread
        await asyncio.sleep(0.01)


async def test_a_commit_rings_for_its_session_and_no_other(either_store: OpenStore) -> None:
    mine, other = make_session(either_store), make_session(either_store)
    feed = RecordingFeed(either_store)
    try:
        with feed.listen(mine) as bell, feed.listen(other), feed.listen(ANY) as every:
            # The first look rings for whom it finds. On Postgres it is the only one without a
            # commit, and it may come before the second listener does.
            first = {mine, other} if either_store.is_sqlite else {mine}
            await until(lambda: first <= set(feed.rung))
            feed.rung.clear()
            await either_store.awrite(lambda db: frames.append(db, mine, ("delta", {"text": "x"})))
            await until(lambda: mine in feed.rung)
            assert other not in feed.rung
            assert await bell.wait(30)
            assert await every.wait(30)
    finally:
        feed.close()


async def test_a_feed_without_listeners_rests_and_wakes_again(sqlite_store: OpenStore) -> None:
    session_id = make_session(sqlite_store)
    feed = Feed(sqlite_store)
    try:
        for _ in range(2):
            with feed.listen(session_id) as bell:
                assert await bell.wait(30)
            assert feed.keys() == []
            await sqlite_store.awrite(lambda db: frames.append(db, session_id, ("delta", {})))
    finally:
        feed.close()
    assert not feed.pause(0), "it is time to stop"


async def test_a_broken_watch_is_begun_again(sqlite_store: OpenStore) -> None:
    session_id = make_session(sqlite_store)
    feed = RecordingFeed(sqlite_store)
    watched = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = feed._watch

    def broken_once(this: Feed) -> None:
        feed._watch = real
        loop.call_soon_threadsafe(watched.set)
        raise OSError("the disk hiccups")

    feed._watch = broken_once
    try:
        with feed.listen(session_id) as bell:
            await asyncio.wait_for(watched.wait(), 120)
            await until(lambda: session_id in feed.rung)
            feed.rung.clear()
            await sqlite_store.awrite(lambda db: frames.append(db, session_id, ("delta", {})))
            await until(lambda: session_id in feed.rung)
            assert await bell.wait(30)
    finally:
        feed.close()


@pytest.mark.req("K-096")
def test_a_lease_has_one_holder_until_it_expires(either_store: Store) -> None:
    def take(holder: str, life_ms: int = 60_000) -> bool:
        return either_store.write(lambda db: leases.acquire(db, "l", holder, life_ms=life_ms))

    assert take("a/1")
    assert take("a/1")
    assert not take("b/1")
    assert either_store.write(lambda db: leases.renew_all(db, "a", life_ms=60_000)) == 1
    assert either_store.read(lambda db: leases.held(db, ["l", "m"])) == {"l"}
    assert not either_store.write(lambda db: leases.release(db, "l", "b/1"))
    assert take("a/1", -1)
    assert either_store.read(lambda db: leases.holder(db, "l")) is None
    assert take("b/1")
    assert either_store.read(leases.holders) == ["b/1"]
    assert either_store.write(lambda db: leases.release_process(db, "b")) == 1


def test_a_page_of_sessions_costs_one_index_however_many_there_are(
    either_store: OpenStore,
) -> None:
    def fill(db: Db) -> None:
        make_project(db)
        for number in range(120):
            db.add(
                SessionRow(
                    id=f"{number:026d}",
                    project_id="p",
                    created_by="o",
                    working_directory="/tmp",
                    dsl_hash="h",
                    last_active=1000 + number // 2,
                )
            )

    either_store.write(fill)
    found: list[str] = []
    cursor: str | None = None
    while True:
        place = cursor

        def page(db: Db, place: str | None = place) -> tuple[list[SessionShown], str | None]:
            return session_views.page(db, Filter("o"), limit=50, cursor=place)

        items, cursor = either_store.read(page)
        found += [str(item["id"]) for item in items]
        if cursor is None:
            break
    assert found == sorted(found, reverse=True)
    assert len(found) == 120


@pytest.mark.parametrize(
    "cursor", ["", "x", "bnVsbA", "W10", "WzEsMl0", "é", "=" * 9, "WzEsIngiXQ="]
)
def test_a_cursor_of_somebody_else_is_refused_or_harmless(cursor: str) -> None:
    try:
        at, key = session_views.read_cursor(cursor)
    except ValidationFailed:
        return
    assert isinstance(at, int)
    assert isinstance(key, str)


def test_the_operators_limit_follows_the_configuration(sqlite_store: OpenStore) -> None:
    def limits(db: Db) -> dict[str, int | None]:
        return {row.name: row.running_limit for row in operators.all_operators(db)}

    sqlite_store.write(lambda db: operators.add(db, "old"))
    sqlite_store.write(lambda db: operators.add(db, "special", running_limit=2))
    sqlite_store.write(lambda db: operators.set_default_limit(db, 5))
    sqlite_store.write(lambda db: operators.add(db, "new"))
    assert sqlite_store.read(limits) == {"new": 5, "old": 5, "special": 2}
    sqlite_store.write(lambda db: operators.set_default_limit(db, 9))
    assert sqlite_store.read(limits) == {"new": 9, "old": 9, "special": 2}


def test_changes_of_the_count_are_those_of_ones_own_sessions(either_store: OpenStore) -> None:
    mine, theirs = make_session(either_store, "o"), make_session(either_store, "x")

    def count(db: Db) -> None:
        for session_id in (mine, theirs):
            row = sessions.get(db, session_id)
            events.append(db, session_id, sessions.running_count(db, "p", row.created_by))

    either_store.write(count)
    found = either_store.read(lambda db: running_counts.changes(db, "o", 0))
    assert [change.data["project_id"] for change in found] == ["p"]
    known = either_store.read(lambda db: running_counts.counts(db, "o"))
    running_counts.apply(known, "o", found[0])
    assert known["per_project"]["p"]["running"] == 0
