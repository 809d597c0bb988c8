"""The consistency check of calls, subagents, snapshots and forks: each damage has its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import SQLModel

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import Call, SessionRow, SubagentInvocation
from holdfast.storage.database.tables_history import Checkpoint, Derivation, Head
from holdfast.storage.database.tables_library import Alias
from holdfast.storage.moves import heads
from holdfast.storage.sessions import aliases, invocations, requests, sessions
from holdfast.storage.transfer.export_document import document
from holdfast.storage.upkeep import consistency, removal
from holdfast.storage.upkeep.consistency_facts import INVOCATION_HEADS
from tests.support.blob_files import blob_file
from tests.support.imports import import_document
from tests.support.stored_rows import derivation_of
from tests.support.workflow_double import WorkflowDouble

GONE = "gone"


@dataclass
class Story:
    """A session with a subagent, a leaf call and a checkpoint, and a fork of it."""

    workflow: WorkflowDouble
    source: str
    fork: str
    first_head: str
    paused_head: str
    checkpoint: str
    invocation: str
    leaf: str

    def set(self, model: type[SQLModel], row_id: str, **columns: Any) -> None:
        """Change a row behind the back of the product."""
        place = table(model)
        damage = update(place).where(place.c.id == row_id).values(**columns)
        done = self.workflow.store.write(lambda db: db.connection().execute(damage).rowcount)
        assert done == 1

    def issues(self, mode: str = "quick") -> list[tuple[str, str, str | None]]:
        report = consistency.check(self.workflow.opened, mode)
        return [(issue.type, issue.id, issue.session_id) for issue in report.issues]


def told(workflow: WorkflowDouble) -> Story:
    source = workflow.session()
    first_head = workflow.run(source)
    run_id = workflow.begin(source)
    row = SubagentInvocation(
        id=new_id(),
        run_id=run_id,
        session_id=source,
        subagent_name="helper",
        agent_path="primary.subagents.helper",
        tool_call_id=workflow.call(source, run_id, "subagent"),
    )
    leaf = Call(id=new_id(), session_id=source, run_id=run_id, type=requests.LEAF)

    def work(db: Db) -> None:
        invocations.begin(db, row, "do this", head=first_head)
        invocations.end(db, row, "done")
        insert_once(db, Call, leaf.model_dump())
        aliases.put(db, workflow.operator_id, "it", source)

    workflow.store.write(work)
    point = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id)
    fork = workflow.fork(source)
    workflow.run(fork)
    return Story(
        workflow=workflow,
        source=source,
        fork=fork,
        first_head=first_head,
        paused_head=str(point.head_id),
        checkpoint=point.id,
        invocation=row.id,
        leaf=leaf.id,
    )


@pytest.fixture
def story(sqlite_store: OpenStore) -> Story:
    return told(WorkflowDouble(sqlite_store))


@pytest.mark.req("F-037", "F-038", "F-040")
def test_a_sound_store_shows_none_of_them(either_store: OpenStore) -> None:
    story = told(WorkflowDouble(either_store))
    assert story.issues("deep") == []
    helper = story.workflow.store.read(lambda db: invocations.find(db, story.invocation))
    assert helper is not None
    assert helper.caller_head_after is not None, "there is something to check"


@pytest.mark.req("F-037")
def test_the_check_is_deep_unless_quick_is_asked_for(story: Story) -> None:
    blob_file(story.workflow.opened, story.first_head).unlink()
    deep = consistency.check(story.workflow.opened).view()
    assert (deep["kind"], deep["mode"], deep["status"]) == ("store", "deep", "issues")
    assert deep["issue_count"] == len(deep["issues"]) > 0
    quick = consistency.check(story.workflow.opened, "quick").view()
    assert (quick["mode"], quick["status"], quick["issue_count"]) == ("quick", "ok", 0)


# By hand, and not from the list that the check reads.
REFERENCES: list[tuple[str, type[SQLModel], str]] = [
    ("current-head-missing", SessionRow, "current_head"),
    ("head-session-missing", Head, "session_id"),
    ("head-basis-missing", Head, "basis"),
    ("head-snapshot-missing", Head, "checkpoint_id"),
    ("head-state-ref-missing", Head, "state_ref"),
    ("derivation-source-session-missing", Derivation, "source_session"),
    ("derivation-target-session-missing", Derivation, "target_session"),
    ("derivation-source-head-missing", Derivation, "source_head"),
    ("invocation-caller-missing", SubagentInvocation, "session_id"),
    ("alias-target-missing", Alias, "session_id"),
]


@pytest.mark.req("F-038", "F-040")
@pytest.mark.parametrize(("issue", "model", "column"), REFERENCES)
def test_a_row_that_names_nothing_is_found(
    story: Story, issue: str, model: type[SQLModel], column: str
) -> None:
    place = table(model)
    one = place.select().where(place.c[column].is_not(None)).limit(1)
    row = story.workflow.store.read(lambda db: db.connection().execute(one).one())
    this = [key == row._mapping[key.name] for key in place.primary_key]
    damage = update(place).where(*this).values({column: GONE})
    story.workflow.store.write(lambda db: db.connection().execute(damage).rowcount)
    assert issue in {found for found, _, _ in story.issues()}


@pytest.mark.req("F-038", "F-040")
def test_a_leaf_call_with_an_invocation_is_found(story: Story) -> None:
    story.set(SubagentInvocation, story.invocation, tool_call_id=story.leaf)
    wanted = ("leaf-call-has-invocation", story.leaf, story.source)
    assert story.issues() == [wanted]
    story.set(Call, story.leaf, type="compaction")
    assert story.issues() == [wanted], "as an older build called it"


@pytest.mark.req("F-040")
def test_an_unknown_type_of_invocation_is_found(story: Story) -> None:
    story.set(SubagentInvocation, story.invocation, type="map-rlm")
    assert story.issues() == [("invalid-invocation-type", story.invocation, story.source)]


@pytest.mark.req("F-038", "F-040")
@pytest.mark.parametrize("column", INVOCATION_HEADS)
def test_a_head_of_an_invocation_that_is_gone_is_found(story: Story, column: str) -> None:
    story.set(SubagentInvocation, story.invocation, **{column: GONE})
    assert story.issues() == [("invocation-head-missing", story.invocation, story.source)]


@pytest.mark.req("F-038", "F-040")
def test_a_session_of_an_invocation_that_is_gone_is_found(story: Story) -> None:
    story.set(SubagentInvocation, story.invocation, callee_session=GONE)
    assert story.issues() == [("invocation-callee-missing", story.invocation, story.source)]


@pytest.mark.req("F-040")
def test_a_snapshots_hash_without_its_id_is_found(story: Story) -> None:
    story.set(Head, story.paused_head, checkpoint_id=None)
    assert story.issues() == [("head-snapshot-id-missing", story.paused_head, story.source)]


@pytest.mark.req("F-040")
def test_a_snapshots_id_without_its_hash_is_found(story: Story) -> None:
    story.set(Head, story.paused_head, snapshot_ref=None)
    assert story.issues() == [("head-snapshot-ref-missing", story.paused_head, story.source)]


@pytest.mark.req("F-039", "F-040")
def test_a_snapshot_that_is_not_the_one_its_head_names_is_found(story: Story) -> None:
    story.set(Checkpoint, story.checkpoint, snapshot={"forged": True})
    assert story.issues() == [], "the quick check hashes nothing"
    assert story.issues("deep") == [("head-snapshot-ref-mismatch", story.paused_head, story.source)]


@pytest.mark.req("F-039", "F-040")
def test_a_head_whose_snapshot_hash_is_not_its_states_is_found(story: Story) -> None:
    story.set(Head, story.paused_head, snapshot_ref="0" * 64)
    assert {issue for issue, _, _ in story.issues("deep")} == {
        "head-snapshot-ref-mismatch",
        "head-state-snapshot-ref-mismatch",
    }


@pytest.mark.req("F-038", "F-040")
def test_a_source_session_of_a_fork_that_is_gone_is_found(story: Story) -> None:
    story.set(SessionRow, story.fork, forked_from=GONE)
    assert story.issues() == [("attach-source-session-missing", story.fork, story.fork)]


@pytest.mark.req("F-038", "F-040")
@pytest.mark.parametrize("damage", ["gone", "of another session"])
def test_a_source_head_of_a_fork_that_is_not_the_sources_is_found(
    story: Story, damage: str
) -> None:
    edge = story.workflow.store.read(lambda db: derivation_of(db, story.fork))
    assert edge is not None
    other = str(story.workflow.row(story.fork).current_head)
    story.set(Derivation, edge.id, source_head=GONE if damage == "gone" else other)
    assert ("attach-source-head-missing", edge.id, story.fork) in story.issues()


@pytest.mark.req("F-038")
def test_a_session_or_head_without_a_cache_id_is_found(story: Story) -> None:
    story.set(SessionRow, story.fork, cache_id=None)
    story.set(Head, story.first_head, cache_id=None)
    assert story.issues() == [
        ("session-cache-id-missing", story.fork, story.fork),
        ("head-cache-id-missing", story.first_head, story.source),
    ]


OLD: dict[str, Callable[[Story], None]] = {
    "an invocation without heads and type": lambda story: story.set(
        SubagentInvocation,
        story.invocation,
        type=None,
        callee_session=None,
        **dict.fromkeys(INVOCATION_HEADS),
    ),
    "a call without a head": lambda story: story.set(Call, story.leaf, head=None),
    "a source that was purged": lambda story: _purge(story),
}


def _purge(story: Story) -> None:
    removal.purge(story.workflow.opened, story.source)


@pytest.mark.req("F-038")
@pytest.mark.parametrize("old", OLD)
def test_what_older_builds_and_purges_leave_is_no_damage(story: Story, old: str) -> None:
    OLD[old](story)
    assert story.issues("deep") == []


@pytest.mark.req("F-038")
def test_what_an_older_build_exported_is_no_damage(
    story: Story, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = open_store(None, tmp_path_factory.mktemp("other") / "home", synchronous="OFF")
    try:
        for session_id in (story.fork, story.source):
            exported = story.workflow.store.read(
                lambda db, one=session_id: document(  # type: ignore[misc]
                    db, story.workflow.opened.blobs, sessions.get(db, one)
                )
            )
            import_document(other, "somebody", without_new_facts(exported))
            assert consistency.check(other, "deep").issues == []
        head = other.read(lambda db: heads.find(db, story.paused_head))
        assert head == story.workflow.head(story.paused_head)
    finally:
        other.close()


def without_new_facts(exported: dict[str, Any]) -> dict[str, Any]:
    """The export without cache ids, hashes of snapshots and heads around subagents."""
    old: dict[str, Any] = json.loads(json.dumps(exported))
    for part in (old["archive"], *old["archive"]["sources"]):
        del part["session"]["cache_id"]
        for head in part["heads"]:
            del head["cache_id"], head["snapshot_ref"]
        for row in part.get("subagent_invocations", []):
            for name in ("type", "callee_session", *INVOCATION_HEADS):
                del row[name]
        for call in part.get("calls", []):
            del call["response_ref"]
    return old
