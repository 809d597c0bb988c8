"""The stories whose histories are kept: each drives a worker, and names the workflows to record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import text

from holdfast.domain.commands import Resume
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.domain.memory_steps import workflow_id
from holdfast.settings.config import Config
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.hosts import hosts
from holdfast.storage.projects import projects
from holdfast.temporal.updates import WorkflowBroken
from tests.support.local_worker import DEADLINE_S, LocalWorker, script
from worker.recovery import restart_lost

# Words that only the database may know. Titles are the first words, so the marks stand behind.
MARK = "xyzzy-private"
LEAD = "some words that come first and become the title of the session, then "
HANGING = {"say": f"{MARK} never said", "hang_s": 60}
TEAM = """
primary:
  model: "scripted:echo"
  subagents:
    helper: {model: "scripted:echo"}
"""

Story = Callable[[LocalWorker], Awaitable[list[str]]]
STORIES: dict[str, Story] = {}
ROLLING = frozenset({"rolled_over"})


def story(tell: Story) -> Story:
    """Keep a story under its own name."""
    STORIES[tell.__name__] = tell
    return tell


def asking(*steps: dict[str, Any]) -> str:
    """A message whose private part a history must not hold."""
    return f"{LEAD}{MARK}\n```script\n{script(*steps)}\n```"


def saying(words: str) -> dict[str, Any]:
    return {"say": f"{words} {MARK}"}


@story
async def plain_run(worker: LocalWorker) -> list[str]:
    """Two messages, each answered."""
    session = worker.session()
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.run(session, f"{LEAD}{MARK} again")
    await worker.state(session, "idle")
    return [session]


@story
async def tool_run(worker: LocalWorker) -> list[str]:
    """Tools one by one and side by side."""
    session = worker.session()
    write = {"call": "write_file", "arguments": {"path": "a.txt", "content": MARK}}
    both = {
        "calls": [{"call": "read_file", "arguments": {"path": "a.txt"}}, {"call": "list_files"}]
    }
    shell = {"call": "shell", "arguments": {"command": "cat a.txt"}}
    await worker.run(session, asking(write, both, shell, saying("done")))
    await worker.state(session, "idle")
    return [session]


@story
async def queued_then_resumed(worker: LocalWorker) -> list[str]:
    """A message waits for a slot, another is discarded."""
    busy = [worker.session() for _ in range(4)]
    for one in busy:
        await worker.send(one, asking(HANGING))
    session = worker.session()
    await worker.send(session, f"{LEAD}{MARK}")
    await worker.plain(session, "discard")
    run = (await worker.send(session, f"{LEAD}{MARK}")).run_id or ""
    await worker.cancel(busy[0])
    await worker.state(busy[0], "idle")
    await worker.resume(session)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def cancelled(worker: LocalWorker) -> list[str]:
    """A cancel in the middle of a model call, one in the middle of a tool call."""
    session = worker.session()
    run = (await worker.send(session, asking({"deltas": 3000, "every_ms": 10}))).run_id or ""
    await worker.streaming(session)
    await worker.cancel(session)
    await worker.over(run)
    sleeping = {"call": "shell", "arguments": {"command": "sleep 60"}}
    run = (await worker.send(session, asking(sleeping))).run_id or ""
    await worker.event(session, "call.put")
    await worker.cancel(session)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def crash_recovered(worker: LocalWorker) -> list[str]:
    """The workflow is lost in the middle of a run, and another goes on from the database."""
    session = worker.session()
    steps = asking({"call": "list_files"}, {"deltas": 50, "every_ms": 10})
    run = (await worker.send(session, steps)).run_id or ""
    await worker.streaming(session)
    await worker.handle(session).terminate("lost on purpose")
    await restart_lost(worker.sessions, worker.store)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def worker_restarted(worker: LocalWorker) -> list[str]:
    """The worker stops in the middle of a model call, and another takes it over."""
    session = worker.session()
    run = (await worker.send(session, asking({"deltas": 50, "every_ms": 10}))).run_id or ""
    await worker.streaming(session)
    await worker.stop_worker()
    await worker.start_worker()
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def rolled_over(worker: LocalWorker) -> list[str]:
    """A run that is longer than one history."""
    session = worker.session(stuck_guard=False)
    steps = {"repeat": 12, "step": {"call": "list_files"}}
    await worker.run(session, asking(steps, saying("done")))
    await worker.state(session, "idle")
    return [session]


@story
async def paused_resumed(worker: LocalWorker) -> list[str]:
    """Pauses by the operator and by the model, each resumed."""
    session = worker.session()
    slow = {"call": "list_files", "hang_s": 0.3}
    own = {"call": "checkpoint", "arguments": {"reason": "look at this"}}
    run = (await worker.send(session, asking(slow, own, saying("done")))).run_id or ""
    paused = await worker.pause(session)
    await worker.resume(session, paused.checkpoint_id)
    row = await worker.state(session, "paused")
    await worker.resume(session, row.current_checkpoint)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def rolled_back(worker: LocalWorker) -> list[str]:
    """A rollback in the middle of a run, and the message after it."""
    session = worker.session()
    await worker.send(session, asking({"deltas": 3000, "every_ms": 10}))
    await worker.streaming(session)
    paused = await worker.pause(session)
    await worker.roll_back(session, paused.checkpoint_id or "")
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.state(session, "idle")
    return [session]


@story
async def ended_and_reopened(worker: LocalWorker) -> list[str]:
    """An end in the middle of a run; the workflow that reopens the session."""
    session = worker.session()
    await worker.send(session, asking(HANGING))
    await worker.plain(session, "end")
    await worker.plain(session, "reopen")
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.state(session, "idle")
    return [session]


@story
async def compacted_by_hand(worker: LocalWorker) -> list[str]:
    """A manual compaction, which is a run of its own, and the message after it."""
    session = worker.session()
    for _ in range(4):
        await worker.run(session, asking(saying("a long story")))
    await worker.state(session, "idle")
    await worker.plain(session, "compact")
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.state(session, "idle")
    return [session]


@story
async def subagent(worker: LocalWorker) -> list[str]:
    """A subagent that uses a tool: its workflow and that of its session."""
    session = worker.session(worker.project(TEAM))
    task = script({"say": MARK, "call": "list_files"}, saying("found"))
    call = {"call": "subagent", "arguments": {"name": "helper", "prompt": task}}
    await worker.run(session, asking(call, saying("done")))
    await worker.state(session, "idle")
    started = await worker.event(session, "subagent.started")
    return [session, f"{session}/{started.data['invocation_id']}"]


@story
async def damaged_in_a_command(worker: LocalWorker) -> list[str]:
    """A pause meets damage of the store: the session fails in the middle of its run."""
    session = worker.session()
    await worker.send(session, asking(HANGING))
    broken = (
        "CREATE TRIGGER broken BEFORE INSERT ON checkpoints BEGIN"
        " SELECT RAISE(ABORT, 'database disk image is malformed'); END"
    )
    worker.store.write(lambda db: db.connection().execute(text(broken)))
    with suppress(WorkflowBroken):
        await worker.pause(session)
    await worker.state(session, "failed")
    return [session]


@story
async def damaged_in_a_subagent(worker: LocalWorker) -> list[str]:
    """A subagent meets damage of the store: its own workflow and that of the session."""
    session = worker.session(worker.project(TEAM))
    missing = {"primary.subagents.helper": "sha256:" + "0" * 64}
    worker.store.write(lambda db: change(db, SessionRow, session, prompts=missing))
    call = {"call": "subagent", "arguments": {"name": "helper", "prompt": MARK}}
    await worker.send(session, asking(call, saying("never")))
    await worker.state(session, "failed")
    started = await worker.event(session, "subagent.started")
    return [session, f"{session}/{started.data['invocation_id']}"]


@story
async def word_without_a_compaction(worker: LocalWorker) -> list[str]:
    """An approval at a checkpoint where no compaction waits is refused, and then the resume."""
    session = worker.session()
    run = (await worker.send(session, asking({"call": "list_files", "hang_s": 0.3}))).run_id or ""
    paused = await worker.pause(session)
    word = Resume(command_id=new_id(), checkpoint_id=paused.checkpoint_id, compaction="approve")
    with suppress(Conflict):
        await worker.command(session, "resume", word)
    await worker.resume(session, paused.checkpoint_id)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def paused_on_its_host(worker: LocalWorker) -> list[str]:
    """A command that is stopped by a pause, goes on, and is killed by a cancel."""
    session = worker.session()
    call = {"call": "shell", "arguments": {"command": "sleep 60"}}
    run = (await worker.send(session, asking(call))).run_id or ""
    await worker.event(session, "call.put")
    paused = await worker.pause(session)
    await worker.resume(session, paused.checkpoint_id)
    await worker.cancel(session)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def files_rolled_back(worker: LocalWorker) -> list[str]:
    """A rollback that brings files back, on the host that has them."""
    session = worker.session()
    write = {"call": "write_file", "arguments": {"path": "a.txt", "content": MARK}}
    slow = {"deltas": 3000, "every_ms": 10}
    await worker.send(session, asking(write, slow))
    await worker.streaming(session)
    paused = await worker.pause(session)
    await worker.roll_back(session, paused.checkpoint_id or "", restore_files=True)
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.state(session, "idle")
    return [session]


@story
async def call_lost(worker: LocalWorker) -> list[str]:
    """A host falls silent, and what was asked of it is given up."""
    session = worker.session()
    await worker.run(session, asking({"call": "list_files"}, saying("placed")))
    await worker.state(session, "idle")
    worker.config = Config.model_validate({"fleet": {"host_lost_after_s": 5}})
    await worker.lose_host()
    other = worker.session()
    worker.store.write(lambda db: hosts.give(db, other, worker.row(session).host_id or ""))
    await worker.run(other, asking({"call": "list_files"}, saying("went on")))
    await worker.state(other, "idle")
    return [session, other]


@story
async def moved(worker: LocalWorker) -> list[str]:
    """An idle session is moved, here to where it is."""
    session = worker.session()
    await worker.run(session, asking({"call": "list_files"}, saying("placed")))
    await worker.state(session, "idle")
    await worker.move(session, worker.row(session).host_id or "")
    await worker.run(session, f"{LEAD}{MARK}")
    await worker.state(session, "idle")
    return [session]


@story
async def memory_synced(worker: LocalWorker) -> list[str]:
    """A memory is built, followed and built anew, for those who wait and those who do not."""
    project = worker.project("primary: {model: 'scripted:echo'}\nmemory: {embedding: none}\n")
    found = worker.store.read(lambda db: projects.by_id(db, project))
    notes = Path(found.path) / "memory"
    notes.mkdir()
    for number, force in enumerate((False, False, True)):
        (notes / f"{number}.md").write_text(f"{MARK} note {number}\n")
        report = await worker.memories.sync(
            project, command_id=new_id(), force=force, wait_s=DEADLINE_S
        )
        assert report is not None
        await worker.memories.ask(project)
    await worker.handle(workflow_id(project)).result()
    return [workflow_id(project)]


@story
async def memory_placed(worker: LocalWorker) -> list[str]:
    """The same, since the machines that may build it are asked for first."""
    return await memory_synced(worker)
