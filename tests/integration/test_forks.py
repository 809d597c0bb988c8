"""Forks: by reference, at constant cost, untouched by what their source does later."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from domain.errors import BadRequest, NotFound
from storage import comparisons, consistency, forks, prompt_edits, removal
from storage.opening import OpenStore
from storage.rows import table
from storage.tables import Message
from tests.support.desk import Desk, comparable


@pytest.fixture
def desk(sqlite_store: OpenStore) -> Desk:
    return Desk(sqlite_store)


@pytest.fixture
def either_desk(either_store: OpenStore) -> Desk:
    return Desk(either_store)


@pytest.mark.req("K-112", "K-148", "F-010")
def test_a_fork_sees_its_source_as_it_was(desk: Desk) -> None:
    source = desk.session()
    desk.run(source, "one")
    fork = desk.fork(source)
    desk.run(source, "two")
    desk.run(fork, "other")
    assert desk.texts(source) == ["one", "done", "two", "done"]
    assert desk.texts(fork) == ["one", "done", "other", "done"]
    row = desk.row(fork)
    assert (row.forked_from, row.parent_session_id) == (source, source)
    edge = desk.store.read(lambda db: forks.derivation(db, fork))
    assert edge is not None
    assert edge.source_head is not None


@pytest.mark.req("K-112")
def test_a_rollback_or_compaction_of_the_source_does_not_show(desk: Desk) -> None:
    source = desk.session()
    run_id = desk.begin(source, "one")
    made = desk.pause(source)
    desk.resume(source)
    desk.finish(run_id, "answer")
    fork = desk.fork(source)
    before = desk.texts(fork)
    desk.compact(source, [key for key, _ in desk.seen(source)])
    assert desk.texts(fork) == before == ["one", "answer"]
    desk.roll_back(source, made.id)
    assert desk.texts(fork) == before
    assert desk.texts(source) == ["one"]


@pytest.mark.req("K-112")
def test_a_fork_of_a_fork_of_a_fork_sees_every_level(either_desk: Desk) -> None:
    desk = either_desk
    session_id = desk.session()
    desk.run(session_id, "level 0")
    chain = [session_id]
    for level in range(1, 4):
        chain.append(desk.fork(chain[-1]))
        desk.run(chain[-1], f"level {level}")
    expected = [text for level in range(4) for text in (f"level {level}", "done")]
    assert desk.texts(chain[-1]) == expected
    inherited = desk.seen(chain[-1])[0][0]
    desk.compact(chain[2], [inherited])
    assert desk.texts(chain[-1]) == expected
    desk.compact(chain[-1], [inherited])
    assert desk.texts(chain[-1])[0] != "level 0"
    assert desk.texts(chain[0])[0] == "level 0"


@pytest.mark.req("K-112", "F-004", "F-036")
def test_a_fork_starts_at_a_checkpoint_or_at_a_head(desk: Desk) -> None:
    source = desk.session()
    head_id = desk.run(source, "one")
    run_id = desk.begin(source, "two")
    made = desk.pause(source)
    desk.resume(source)
    desk.finish(run_id, "answer")
    assert desk.texts(desk.fork(source, checkpoint_id=made.id)) == ["one", "done", "two"]
    fork = desk.fork(source, head_id=head_id)
    assert desk.texts(fork) == ["one", "done"]
    assert desk.row(fork).message_count == 2
    with pytest.raises(BadRequest):
        desk.fork(source, head_id=head_id, checkpoint_id=made.id)
    other = desk.run(desk.session())
    with pytest.raises(NotFound):
        desk.fork(source, head_id=other)


@pytest.mark.req("K-143")
def test_a_missing_or_foreign_source_is_not_found(desk: Desk) -> None:
    foreign = desk.session(created_by="somebody-else")
    for source in ("nothing", foreign):
        with pytest.raises(NotFound, match="Source session not found"):
            desk.fork(source)


@pytest.mark.req("F-033")
def test_a_fork_copies_no_message(desk: Desk) -> None:
    source = desk.session()
    desk.fill(source, 30)
    count = select(func.count()).select_from(table(Message))
    before = desk.store.read(lambda db: db.connection().execute(count).scalar_one())
    fork = desk.fork(source)
    assert desk.store.read(lambda db: db.connection().execute(count).scalar_one()) == before
    assert len(desk.texts(fork)) == 30
    assert desk.store.read(lambda db: forks.kept_for_forks(db, source)) == 30
    assert desk.store.read(lambda db: forks.kept_for_forks(db, fork)) is None


def test_two_sessions_are_compared_from_where_they_parted(either_desk: Desk) -> None:
    desk = either_desk
    source = desk.session()
    shared = desk.run(source, "shared")
    left, right = desk.fork(source), desk.fork(source)
    desk.run(left, "left")
    desk.run(right, "right")
    desk.run(source, "source")

    def compare(a: str, b: str) -> dict[str, object]:
        return desk.store.read(lambda db: comparisons.compare(db, a, b))

    def since(side: object) -> list[str]:
        assert isinstance(side, dict)
        return [message["content"] for message in side["messages"]]

    found = compare(left, right)
    assert isinstance(found["common"], dict)
    assert found["common"]["head_id"] == shared
    assert found["common"]["session_id"] == source
    assert (since(found["a"]), since(found["b"])) == (["left", "done"], ["right", "done"])
    found = compare(source, left)
    assert (since(found["a"]), since(found["b"])) == (["source", "done"], ["left", "done"])
    found = compare(left, desk.session())
    assert found["common"] is None
    assert len(since(found["a"])) == 4


@pytest.mark.req("K-112", "H-042")
def test_forks_outlive_the_purge_of_their_sources(desk: Desk) -> None:
    source = desk.session()
    desk.run(source, "one")
    run_id = desk.begin(source, "two")
    made = desk.pause(source)
    desk.resume(source)
    desk.finish(run_id)
    middle = desk.fork(source, checkpoint_id=made.id)
    fork = desk.fork(middle)
    head_id = desk.run(fork, "three")
    before = desk.state(head_id)
    removal.purge(desk.opened, source)
    removal.purge(desk.opened, middle)
    assert desk.state(head_id) == before
    assert desk.texts(fork) == ["one", "done", "two", "three", "done"]
    text = prompt_edits.text_of(desk.opened.blobs, desk.row(fork), "primary")
    assert text == "You are the root."
    newer = desk.run(fork, "four")
    assert comparable(desk.state(newer)) == desk.state_in_tables(fork)
    assert consistency.check(desk.opened).issues == []
