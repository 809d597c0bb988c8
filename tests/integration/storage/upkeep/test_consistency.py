"""The consistency check: silent on a sound store, and every fault has its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once, table
from holdfast.storage.database.tables import Call, Message, SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import (
    Checkpoint,
    Derivation,
    EventRow,
    Head,
)
from holdfast.storage.database.tables_library import Alias, Chat
from holdfast.storage.upkeep import consistency
from holdfast.storage.upkeep.consistency_links import LINKS, Link
from tests.support.blob_files import blob_file
from tests.support.stored_rows import add_named_rows, execute_unchecked
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def filled(workflow: WorkflowDouble) -> tuple[str, str]:
    """A store with one row of every kind; the source's and the fork's id."""
    source = workflow.session()
    run_id = workflow.begin(source)
    call_id = workflow.call(source, run_id)
    workflow.subagent(source, run_id)
    made = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id)
    fork = workflow.fork(source)
    workflow.run(fork)
    workflow.supersede(fork, [workflow.seen(fork)[0][0]], "discard", "cause")
    answer = workflow.seen(source)[0][0]
    blob_id = f"sha256:{workflow.row(fork).current_head}"

    def more(db: Db) -> None:
        alias = Alias(operator_id=workflow.operator_id, name="it", session_id=source)
        insert_once(db, Alias, alias.model_dump())
        chat = Chat(id="chat", operator_id="o", user_id="u", chat_id="c", session_id=source)
        insert_once(db, Chat, chat.model_dump())
        call = Call(
            id="call",
            session_id=source,
            run_id=run_id,
            request_ref=blob_id,
            status="done",
            message_id=answer,
        )
        insert_once(db, Call, call.model_dump())
        change(db, ToolCallRow, call_id, output_ref=blob_id)
        change(db, SessionRow, fork, active_run=run_id, current_checkpoint=made.id)
        add_named_rows(db, made, workflow.project_id, run_id, transcript=blob_id)

    workflow.store.write(more)
    return source, fork


def issues(workflow: WorkflowDouble, mode: str = "deep") -> set[str]:
    report = consistency.check(workflow.opened, mode)
    assert report.view()["status"] == ("issues" if report.issues else "ok")
    return {issue.type for issue in report.issues}


@pytest.mark.req("F-037")
def test_a_sound_store_has_no_issue(either_store: OpenStore) -> None:
    workflow = WorkflowDouble(either_store)
    filled(workflow)
    report = consistency.check(workflow.opened).view()
    assert report["issues"] == []
    assert report["status"] == "ok"
    assert report["counts"]["sessions"] == 2


@pytest.mark.req("F-037", "K-002")
def test_an_operator_is_told_of_its_own_rows_only(workflow: WorkflowDouble) -> None:
    source, _ = filled(workflow)
    workflow.store.write(lambda db: change(db, SessionRow, source, current_head="gone"))
    mine = consistency.check(workflow.opened, "deep", operator_id=workflow.operator_id).view()
    assert "current-head-missing" in {issue["type"] for issue in mine["issues"]}
    assert mine["counts"]["sessions"] == 2
    assert mine["counts"]["messages"] > 0
    stranger = consistency.check(workflow.opened, "deep", operator_id="somebody").view()
    assert (stranger["status"], stranger["issue_count"], stranger["issues"]) == ("ok", 0, [])
    assert stranger["counts"] == {"sessions": 0, "messages": 0, "events": 0, "heads": 0}


@pytest.mark.req("F-038", "F-040")
def test_every_dangling_reference_has_its_name(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(workflow)
    for link in LINKS:
        monkeypatch.setattr(consistency, "LINKS", (link,))
        mend = _break(workflow, link)
        assert link.issue in issues(workflow, "quick"), link.issue
        mend()
    monkeypatch.undo()
    assert issues(workflow, "quick") == set()


def _break(workflow: WorkflowDouble, link: Link) -> Callable[[], None]:
    """Let one row name what is not there; answers how to mend it."""
    place = link.source
    key, column = place.c[link.key], place.c[link.column]

    whole = place.select().where(column.is_not(None), column != "").limit(1)
    found = workflow.store.read(lambda db: db.connection().execute(whole).first())
    assert found is not None, f"no row to break for {link.issue}"
    which, before = found._mapping[link.key], found._mapping[link.column]
    spoil = update(place).where(key == which).values({link.column: "gone"})
    execute_unchecked(workflow.store, spoil)
    named = "gone" if link.key == link.column else which

    def mend() -> None:
        whole_again = update(place).where(key == named).values({link.column: before})
        execute_unchecked(workflow.store, whole_again)

    return mend


@pytest.mark.req("F-034", "F-038")
def test_a_counter_that_is_too_low_is_found(workflow: WorkflowDouble) -> None:
    source, _ = filled(workflow)
    workflow.store.write(lambda db: change(db, SessionRow, source, message_seq=1))
    assert "message-counter-too-low" in issues(workflow, "quick")


@pytest.mark.req("F-039", "F-040")
def test_a_blob_that_is_gone_or_damaged_is_found(workflow: WorkflowDouble) -> None:
    source, _ = filled(workflow)
    head_id = str(workflow.row(source).current_head)
    path = blob_file(workflow.opened, head_id)
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    wanted = {"blob/hash-mismatch", "head-state-unreadable", "current-head-state-unreadable"}
    assert wanted <= issues(workflow)
    path.unlink()
    assert {"blob/missing", "head-state-component-basis-missing"} <= issues(workflow)
    assert issues(workflow, "quick") == set()


@pytest.mark.req("F-039", "F-040")
@pytest.mark.parametrize(
    ("issue", "column"),
    [
        ("head-state-basis-mismatch", "basis"),
        ("head-state-final-ref-mismatch", "final_ref"),
        ("head-state-snapshot-ref-mismatch", "checkpoint_id"),
        ("head-state-version-mismatch", "state_version"),
        ("head-state-session-mismatch", "session_id"),
        ("head-state-ref-mismatch", "state_ref"),
    ],
)
def test_a_head_that_disagrees_with_its_state_is_found(
    workflow: WorkflowDouble, issue: str, column: str
) -> None:
    source, fork = filled(workflow)
    head_id = str(workflow.row(source).current_head)
    other = {"state_version": 1, "session_id": fork}.get(column, "other")
    workflow.store.write(lambda db: change(db, Head, head_id, **{column: other}))
    assert issue in issues(workflow)


@pytest.mark.req("F-039")
def test_a_changed_or_missing_event_breaks_the_chain(workflow: WorkflowDouble) -> None:
    source, _ = filled(workflow)
    place = table(EventRow)
    mine = place.c.session_id == source, place.c.seq == 3

    def forge(db: Db) -> None:
        db.connection().execute(update(place).where(*mine).values(data={"forged": True}))

    workflow.store.write(forge)
    report = consistency.check(workflow.opened)
    found = [issue for issue in report.issues if issue.type == "event-chain-broken"]
    assert [(issue.id, issue.session_id) for issue in found] == [("3", source)]


def test_the_list_of_issues_has_a_limit(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "ISSUES_MAX", 2)
    source = workflow.session()
    for _ in range(3):
        workflow.say(source, "x")
    execute_unchecked(workflow.store, update(table(Message)).values(session_id="gone"))
    assert len(consistency.check(workflow.opened, "quick").issues) == 2


@pytest.mark.req("F-037", "K-002")
def test_dangling_references_are_counted_in_words(
    either_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "ISSUES_MAX", 2)
    workflow = WorkflowDouble(either_store)
    source = workflow.session()
    run_id = workflow.begin(source)
    for _ in range(3):
        workflow.call(source, run_id)
    execute_unchecked(workflow.store, update(table(ToolCallRow)).values(run_id="gone"))
    report = consistency.check(workflow.opened, "quick").view()
    assert report["dangling"] == [
        {
            "type": "tool-call-run-missing",
            "count": 3,
            "words": "3 rows of tool_calls name a row of runs that is missing (run_id);"
            " kept as they are",
        }
    ]
    mine = consistency.check(workflow.opened, "quick", operator_id=workflow.operator_id).view()
    assert mine["dangling"] == report["dangling"]
    stranger = consistency.check(workflow.opened, "quick", operator_id="somebody").view()
    assert stranger["dangling"] == []


def test_every_kind_of_reference_is_looked_at() -> None:
    looked_at = {(link.source.name, link.column) for link in LINKS}
    assert ("derivations", "source_head") in looked_at
    assert (str(table(Derivation).name), "source_session") in looked_at
    assert (str(table(Checkpoint).name), "head_id") in looked_at
