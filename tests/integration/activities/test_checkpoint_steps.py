"""The steps around a pause point: each may be repeated, and none acts on what has moved on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.checkpoints import CheckpointActivities
from holdfast.domain.checkpoint_steps import PauseStep, ResumeStep, RollBackStep, TreeStep
from holdfast.domain.ids import new_id
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.domain.steps import ProcessesStep
from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Project
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.moves import checkpoints
from holdfast.storage.projects import projects
from holdfast.terminal.client import Suspension, TerminalClient
from tests.support.workflow_double import WorkflowDouble


class FakeTerminal:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def suspend(self, **which: Any) -> Suspension:
        self.asked.append(("suspend", which))
        return Suspension((), (), True)

    async def resume(self, **which: Any) -> Suspension:
        self.asked.append(("resume", which))
        return Suspension((), (), True)

    async def kill(self, **which: Any) -> list[str]:
        self.asked.append(("kill", which))
        return []


class Bench:
    """A workflow with the steps on it and a session in a folder of its own."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.workflow = WorkflowDouble(store)
        self.folder = folder
        self.terminal = FakeTerminal()
        self.config = Config()
        self.steps = CheckpointActivities(
            store, self._client, folder.parent / "snapshots", lambda: self.config
        )
        self.environment = ActivityEnvironment()
        helper = AgentSpec(system_prompt="You help.")
        file = ProjectFile(
            project="bench",
            primary=AgentSpec(system_prompt="project:/prompt.md", subagents={"helper": helper}),
        )
        store.write(lambda db: projects.keep_file(db, "bench", file.model_dump(mode="json")))
        store.write(lambda db: change(db, Project, self.workflow.project_id, path=str(folder)))
        self.session_id = self.workflow.session(dsl_hash="bench", working_directory=str(folder))

    async def _client(self) -> TerminalClient:
        return cast(TerminalClient, self.terminal)

    async def do(self, step: Any, argument: Any) -> Any:
        return await self.environment.run(step, argument)

    async def pause(self, run_id: str, **fields: Any) -> str:
        step = PauseStep(
            session_id=self.session_id, checkpoint_id=new_id(), run_id=run_id, **fields
        )
        first = await self.do(self.steps.pause_session, step)
        assert await self.do(self.steps.pause_session, step) == first
        assert first.state == "paused"
        return str(first.checkpoint_id)

    def checkpoint(self, checkpoint_id: str) -> Checkpoint:
        return self.workflow.store.read(
            lambda db: checkpoints.get(db, self.session_id, checkpoint_id)
        )


@pytest.fixture
def bench(sqlite_store: OpenStore, tmp_path: Path) -> Bench:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "prompt.md").write_text("You are the root.")
    return Bench(sqlite_store, folder)


@pytest.mark.req("K-056", "K-061", "K-147")
async def test_a_pause_keeps_the_models_reason_and_every_agents_prompt(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    call_id = bench.workflow.call(bench.session_id, run_id, "checkpoint", reason="look here")
    made = bench.checkpoint(await bench.pause(run_id, created_by="model", tool_call_id=call_id))
    assert (made.created_by, made.reason) == ("model", "look here")
    assert set(made.prompts) == {"primary", "primary.subagents.helper"}
    (bench.folder / "prompt.md").unlink()
    bench.workflow.resume(bench.session_id)
    await bench.pause(run_id)


async def test_a_call_whose_pause_was_resumed_does_not_pause_again(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    calls = [
        bench.workflow.call(bench.session_id, run_id, "checkpoint", reason=reason)
        for reason in ("first", "second")
    ]
    made = await bench.pause(run_id, created_by="model", tool_call_id=calls[0])
    bench.workflow.resume(bench.session_id)
    # Temporal's file was lost: a new workflow finds the call without its result.
    again = PauseStep(
        session_id=bench.session_id,
        checkpoint_id=new_id(),
        run_id=run_id,
        created_by="model",
        tool_call_id=calls[0],
    )
    passed = await bench.do(bench.steps.pause_session, again)
    assert (passed.checkpoint_id, passed.state) == (made, "running")
    other = await bench.pause(run_id, created_by="model", tool_call_id=calls[1])
    assert bench.checkpoint(other).reason == "second"


@pytest.mark.req("K-064")
async def test_a_repeated_resume_answers_alike_and_a_late_one_is_refused(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    checkpoint_id = await bench.pause(run_id)
    step = ResumeStep(
        session_id=bench.session_id, checkpoint_id=checkpoint_id, command_id="command"
    )
    first = await bench.do(bench.steps.resume_session, step)
    assert (first.state, first.run_id) == ("running", run_id)
    assert await bench.do(bench.steps.resume_session, step) == first
    late = ResumeStep(session_id=bench.session_id, checkpoint_id=checkpoint_id, command_id="b")
    with pytest.raises(ApplicationError) as refused:
        await bench.do(bench.steps.resume_session, late)
    assert (refused.value.type, refused.value.non_retryable) == ("conflict", True)


@pytest.mark.req("K-031", "K-064")
async def test_processes_are_stopped_only_while_the_session_is_paused(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    processes = ProcessesStep(session_id=bench.session_id, run_id=run_id)
    assert not await bench.do(bench.steps.suspend_processes, processes)
    await bench.pause(run_id)
    assert await bench.do(bench.steps.suspend_processes, processes)
    assert not await bench.do(bench.steps.resume_processes, processes)
    bench.workflow.resume(bench.session_id)
    assert await bench.do(bench.steps.resume_processes, processes)
    # With nothing left to do a session is idle, and what its run left behind goes on.
    bench.workflow.finish(run_id)
    assert await bench.do(bench.steps.resume_processes, ProcessesStep(session_id=bench.session_id))
    await bench.do(bench.steps.kill_processes, ProcessesStep(session_id=bench.session_id))
    names = [name for name, _ in bench.terminal.asked]
    assert names == ["suspend", "resume", "resume", "kill"]


@pytest.mark.req("K-066")
async def test_a_repeated_rollback_restores_the_same_files_and_can_be_undone(
    bench: Bench,
) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    (bench.folder / "file").write_text("then")
    checkpoint_id = await bench.pause(run_id)
    tree = TreeStep(session_id=bench.session_id, checkpoint_id=checkpoint_id)
    saved = await bench.do(bench.steps.snapshot_tree, tree)
    assert await bench.do(bench.steps.snapshot_tree, tree) == saved
    bench.workflow.resume(bench.session_id)
    bench.workflow.finish(run_id)
    (bench.folder / "file").write_text("now")
    step = RollBackStep(
        session_id=bench.session_id,
        checkpoint_id=checkpoint_id,
        command_id="command",
        restore_files=True,
    )
    first = await bench.do(bench.steps.roll_back_session, step)
    assert first.messages_superseded == 1
    assert first.files["restored"] == ["file"]
    # A worker that died half-way: the repeat must not take the restored files for the old ones.
    again = await bench.do(bench.steps.roll_back_session, step)
    assert again.messages_superseded == 1
    assert (bench.folder / "file").read_text() == "then"
    undo = RollBackStep(
        session_id=bench.session_id,
        checkpoint_id=checkpoint_id,
        command_id="undo",
        undo_restore=True,
    )
    await bench.do(bench.steps.roll_back_session, undo)
    assert (bench.folder / "file").read_text() == "now"


async def test_an_undone_restore_brings_back_a_file_that_is_ignored_by_now(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    notes = bench.folder / "notes"
    notes.write_text("then")
    checkpoint_id = await bench.pause(run_id)
    tree = TreeStep(session_id=bench.session_id, checkpoint_id=checkpoint_id)
    await bench.do(bench.steps.snapshot_tree, tree)
    bench.workflow.resume(bench.session_id)
    notes.unlink()
    await bench.do(bench.steps.snapshot_tree, TreeStep(session_id=bench.session_id, run_id=run_id))
    bench.workflow.finish(run_id)
    (bench.folder / ".gitignore").write_text("notes\n")
    notes.write_text("now")

    def step(command_id: str, **which: Any) -> RollBackStep:
        return RollBackStep(
            session_id=bench.session_id,
            checkpoint_id=checkpoint_id,
            command_id=command_id,
            **which,
        )

    await bench.do(bench.steps.roll_back_session, step("restore", restore_files=True))
    assert notes.read_text() == "then"
    await bench.do(bench.steps.roll_back_session, step("undo", undo_restore=True))
    assert notes.read_text() == "now"


async def test_files_are_not_saved_for_a_session_that_went_on(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    checkpoint_id = await bench.pause(run_id)
    bench.workflow.resume(bench.session_id)
    saved = await bench.do(
        bench.steps.snapshot_tree,
        TreeStep(session_id=bench.session_id, checkpoint_id=checkpoint_id),
    )
    assert saved.tree is None
    assert "went on" in saved.note
    bench.workflow.finish(run_id)
    step = RollBackStep(
        session_id=bench.session_id,
        checkpoint_id=checkpoint_id,
        command_id="command",
        restore_files=True,
    )
    done = await bench.do(bench.steps.roll_back_session, step)
    words = "the session went on before its files could be saved"
    assert done.files["not_undone"] == [f"the files of this checkpoint were not saved: {words}"]


async def test_a_paused_session_is_rolled_back_before_its_files_were_saved(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    checkpoint_id = await bench.pause(run_id)
    step = RollBackStep(
        session_id=bench.session_id,
        checkpoint_id=checkpoint_id,
        command_id="command",
        restore_files=True,
    )
    done = await bench.do(bench.steps.roll_back_session, step)
    assert (done.state, done.cancelled_run) == ("idle", run_id)
    assert done.files == {"restored": [], "deleted": [], "not_undone": []}
    assert ("kill", {"run_id": run_id}) in bench.terminal.asked


async def test_a_run_saves_the_files_before_it_changes_them_once(bench: Bench) -> None:
    run_id = bench.workflow.begin(bench.session_id)
    step = TreeStep(session_id=bench.session_id, run_id=run_id)
    first = await bench.do(bench.steps.snapshot_tree, step)
    (bench.folder / "file").write_text("changed")
    assert await bench.do(bench.steps.snapshot_tree, step) == first
