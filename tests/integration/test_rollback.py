"""Rollback: nothing is deleted, everything after the checkpoint no longer counts."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from domain.errors import ActionNotAllowed, Conflict, NotFound
from storage import checkpoints, compactions, prompt_edits, runs
from storage.opening import OpenStore
from storage.rows import table
from storage.tables import Message, SubagentInvocation, ToolCallRow
from tests.support.desk import Desk


@pytest.fixture
def desk(sqlite_store: OpenStore) -> Desk:
    return Desk(sqlite_store)


@pytest.fixture
def either_desk(either_store: OpenStore) -> Desk:
    return Desk(either_store)


def rows_of(desk: Desk) -> int:
    count = select(func.count()).select_from(table(Message))
    return desk.store.read(lambda db: int(db.connection().execute(count).scalar_one()))


@pytest.mark.req("K-066", "K-067")
def test_a_rollback_supersedes_what_came_after_and_deletes_nothing(either_desk: Desk) -> None:
    desk = either_desk
    session_id = desk.session()
    run_id = desk.begin(session_id, "one")
    made = desk.pause(session_id)
    desk.resume(session_id, made.id)
    desk.finish(run_id, "answer one")
    desk.run(session_id, "two")
    before = rows_of(desk)
    outcome = desk.roll_back(session_id, made.id)
    assert outcome.messages_superseded == 3
    assert rows_of(desk) == before
    assert desk.texts(session_id) == ["one"]
    session = desk.row(session_id)
    assert (session.state, session.current_checkpoint) == ("idle", None)
    assert session.current_head == made.head_id
    assert desk.roll_back(session_id, made.id).messages_superseded == 0


@pytest.mark.req("K-066")
def test_a_rollback_of_a_paused_run_cancels_it_and_kills_its_subagents(either_desk: Desk) -> None:
    desk = either_desk
    session_id = desk.session()
    run_id = desk.begin(session_id)
    made = desk.pause(session_id)
    desk.resume(session_id, made.id)
    call_id = desk.call(session_id, run_id)
    helper = desk.subagent(session_id, run_id)
    desk.pause(session_id)
    outcome = desk.roll_back(session_id, made.id, user_id="me")
    assert outcome.cancelled_run == run_id
    assert outcome.killed_invocations == [helper]

    def states(model: type, key: str) -> str:
        place = table(model)
        found = select(place.c.state).where(place.c.id == key)
        return str(desk.store.read(lambda db: db.connection().execute(found).scalar_one()))

    assert desk.store.read(lambda db: runs.get(db, run_id)).state == "cancelled"
    assert states(SubagentInvocation, helper) == "killed"
    assert states(ToolCallRow, call_id) == "failed"


@pytest.mark.req("K-068")
def test_a_rollback_to_an_old_checkpoint_supersedes_those_between(desk: Desk) -> None:
    session_id = desk.session()
    desk.begin(session_id)
    first = desk.pause(session_id)
    desk.resume(session_id)
    second = desk.pause(session_id)
    desk.resume(session_id)
    third = desk.pause(session_id)
    desk.roll_back(session_id, first.id)
    found = {
        row.id: row.superseded_by
        for row in desk.store.read(lambda db: checkpoints.of_session(db, session_id, limit=10))
    }
    assert found == {first.id: None, second.id: first.id, third.id: first.id}
    with pytest.raises(Conflict, match="superseded"):
        desk.roll_back(session_id, second.id)


def test_a_repeated_rollback_gives_the_same_answer(desk: Desk) -> None:
    session_id = desk.session()
    run_id = desk.begin(session_id)
    made = desk.pause(session_id)
    desk.resume(session_id)
    desk.say(session_id, "more", "primary", run_id=run_id)
    desk.pause(session_id)
    first = desk.roll_back(session_id, made.id, command_id="command")
    assert first.messages_superseded == 1
    assert desk.roll_back(session_id, made.id, command_id="command") == first


def test_a_running_session_and_a_foreign_checkpoint_are_refused(desk: Desk) -> None:
    session_id, other_id = desk.session(), desk.session()
    desk.begin(session_id)
    made = desk.pause(session_id)
    with pytest.raises(NotFound):
        desk.roll_back(other_id, made.id)
    desk.resume(session_id)
    with pytest.raises(ActionNotAllowed):
        desk.roll_back(session_id, made.id)


@pytest.mark.req("K-066")
def test_the_prompts_of_the_checkpoint_are_in_effect_again(desk: Desk) -> None:
    session_id = desk.session()
    desk.begin(session_id)
    made = desk.pause(session_id)
    blobs = desk.opened.blobs
    desk.store.write(lambda db: prompt_edits.edit(db, blobs, made, "primary", "Other."))
    desk.resume(session_id)
    desk.pause(session_id)
    desk.roll_back(session_id, made.id)
    text = prompt_edits.text_of(blobs, desk.row(session_id), "primary")
    assert text == "You are the root."


@pytest.mark.req("K-085")
def test_a_rollback_past_a_compaction_brings_its_messages_back(either_desk: Desk) -> None:
    desk = either_desk
    session_id = desk.session()
    early = desk.say(session_id, "early")
    run_id = desk.begin(session_id, "late")
    made = desk.pause(session_id)
    desk.resume(session_id)
    desk.finish(run_id)
    record = desk.compact(session_id, [early.id])
    assert "early" not in desk.texts(session_id)
    desk.roll_back(session_id, made.id)
    assert desk.texts(session_id) == ["early", "late"]
    kept = desk.store.read(lambda db: compactions.get(db, session_id, record.id))
    assert kept.rolled_back


@pytest.mark.req("K-085")
def test_a_compaction_before_the_checkpoint_stays(desk: Desk) -> None:
    session_id = desk.session()
    early = desk.say(session_id, "early")
    desk.compact(session_id, [early.id])
    desk.begin(session_id, "late")
    made = desk.pause(session_id)
    desk.roll_back(session_id, made.id)
    assert desk.texts(session_id) == ["In short.", "late"]
