"""Leases, subagents and terminals as rows: whose they are, and which end wins."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SubagentInvocation
from holdfast.storage.database.tables_history import Lease, Pty
from holdfast.storage.log import events
from holdfast.storage.sessions import invocations, leases, ptys
from tests.support.workflow_double import WorkflowDouble

LIFE_MS = 60_000


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def acquire(workflow: WorkflowDouble, name: str, holder: str) -> bool:
    return workflow.store.write(lambda db: leases.acquire(db, name, holder, life_ms=LIFE_MS))


def holder(workflow: WorkflowDouble, name: str) -> str | None:
    return workflow.store.read(lambda db: leases.holder(db, name))


def told(workflow: WorkflowDouble, session_id: str, kind: str) -> list[Any]:
    rows = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    return [row for row in rows if row.kind == kind]


def test_a_lease_has_one_holder_until_it_expires(workflow: WorkflowDouble) -> None:
    assert acquire(workflow, "one", "p/1")
    assert acquire(workflow, "two", "q/1")
    assert acquire(workflow, "one", "p/1")
    assert not acquire(workflow, "one", "q/1")
    assert (holder(workflow, "one"), holder(workflow, "two")) == ("p/1", "q/1")
    workflow.store.write(lambda db: change(db, Lease, "one", expires_at=1))
    assert holder(workflow, "one") is None
    names = ["one", "two", "three"]
    assert workflow.store.read(lambda db: leases.held(db, names)) == {"two"}
    assert acquire(workflow, "one", "q/2")
    assert holder(workflow, "one") == "q/2"
    assert workflow.store.read(lambda db: leases.held(db, ["one"])) == {"one"}
    assert set(workflow.store.read(lambda db: leases.holders(db))) == {"q/1", "q/2"}


def test_only_its_holder_gives_a_lease_back(workflow: WorkflowDouble) -> None:
    acquire(workflow, "one", "p/1")
    acquire(workflow, "two", "p/1")

    def release(name: str, who: str) -> bool:
        return workflow.store.write(lambda db: leases.release(db, name, who))

    assert not release("one", "q/1")
    assert release("one", "p/1")
    assert not release("one", "p/1")
    assert (holder(workflow, "one"), holder(workflow, "two")) == (None, "p/1")


def test_a_process_renews_and_frees_only_its_own(workflow: WorkflowDouble) -> None:
    attached = leases.attach_lease("session")
    for name, who in (
        (attached, "p_1/1"),
        ("other", "p_1/2"),
        ("theirs", "px1/1"),
        ("p", "p_12/1"),
    ):
        acquire(workflow, name, who)
        workflow.store.write(lambda db, key=name: change(db, Lease, key, expires_at=1))  # type: ignore[misc]
    assert workflow.store.write(lambda db: leases.renew_all(db, "p_1", life_ms=LIFE_MS)) == 2
    names = [attached, "other", "theirs", "p"]
    held = workflow.store.read(lambda db: leases.held(db, names))
    assert held == {attached, "other"}
    assert workflow.store.read(lambda db: leases.attached_by(db, "p_1")) == ["session"]
    assert workflow.store.read(lambda db: leases.attached_by(db, "px1")) == []
    assert workflow.store.write(lambda db: leases.release_process(db, "p_1")) == 2
    assert set(workflow.store.read(lambda db: leases.holders(db))) == {"px1/1", "p_12/1"}


def test_the_first_end_of_a_subagent_wins(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    row = SubagentInvocation(
        id=new_id(),
        run_id=run_id,
        session_id=session_id,
        subagent_name="helper",
        agent_path="primary.subagents.helper",
    )
    for _ in range(2):
        workflow.store.write(lambda db: invocations.begin(db, row.model_copy(), "Help."))
    (started,) = told(workflow, session_id, "subagent.started")
    assert (started.data["invocation_id"], started.data["name"]) == (row.id, "helper")
    other = workflow.subagent(session_id, run_id, "other")
    assert workflow.store.read(lambda db: invocations.count_open(db, run_id)) == 2
    assert workflow.store.read(lambda db: invocations.count_open(db, "none")) == 0

    def end(state: str, error: dict[str, Any] | None = None) -> bool:
        return workflow.store.write(lambda db: invocations.end(db, row, state, error))

    assert end("failed", {"code": "x"})
    assert not end("done")
    found = workflow.store.read(lambda db: invocations.find(db, row.id))
    assert found is not None
    assert (found.state, found.exit_code, found.error) == ("failed", 1, {"code": "x"})
    assert found.exited_at is not None
    assert found.exited_at >= found.spawned_at > 0
    assert workflow.store.write(lambda db: invocations.kill_open(db, run_id)) == 1
    killed = workflow.store.read(lambda db: invocations.find(db, other))
    assert killed is not None
    assert (killed.state, killed.exit_code) == ("killed", 137)
    finished = told(workflow, session_id, "subagent.finished")
    assert [(one.data["name"], one.data["state"]) for one in finished] == [
        ("helper", "failed"),
        ("other", "killed"),
    ]


def test_the_last_answer_is_the_subagents_own_and_not_empty(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    helper, other = (workflow.subagent(session_id, run_id, name) for name in ("helper", "other"))

    def last(key: str) -> str:
        return workflow.store.read(lambda db: invocations.last_answer(db, key))

    assert last(helper) == ""
    for text, role in (("one", "subagent"), ("two", "subagent"), ("", "subagent"), ("r", "tool")):
        workflow.say(session_id, text, role, run_id=run_id, invocation_id=helper)
    assert (last(helper), last(other)) == ("two", "")


def test_terminals_are_counted_and_listed_by_session(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()

    def opened(session: str, created_at: int) -> str:
        pty = Pty(id=new_id(), session_id=session, subagent="helper", host_id="here")
        workflow.store.write(lambda db: ptys.opened(db, pty))
        workflow.store.write(lambda db: ptys.opened(db, pty))
        workflow.store.write(lambda db: change(db, Pty, pty.id, created_at=created_at))
        return pty.id

    theirs = opened(other_id, 5)
    mine = [opened(session_id, at) for at in (2, 3, 1)]
    listed = workflow.store.read(lambda db: ptys.of_session(db, session_id))
    assert [one.id for one in listed] == [mine[1], mine[0], mine[2]]
    assert len(told(workflow, session_id, "pty.allocated")) == 3
    workflow.store.write(lambda db: change(db, Pty, mine[0], state="closed"))
    workflow.store.write(lambda db: change(db, Pty, mine[1], state="detached"))
    assert workflow.store.read(lambda db: ptys.live_count(db, session_id)) == 2
    live = workflow.store.read(lambda db: ptys.live(db, "here"))
    assert {one.id for one in live} == {theirs, mine[1], mine[2]}
    assert workflow.store.read(lambda db: ptys.live(db, "elsewhere")) == []
    with pytest.raises(NotFound):
        workflow.store.read(lambda db: ptys.get(db, session_id, theirs))
    for _ in range(ptys.LIVE_MAX - 2):
        opened(session_id, 9)
    with pytest.raises(Conflict, match="at most 8"):
        opened(session_id, 9)
