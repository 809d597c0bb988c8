"""The stories whose histories are kept: each drives a rig, and names the workflows to record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from domain.ids import new_id
from domain.memory_steps import workflow_id
from storage import projects
from tests.support.rig import DEADLINE_S, Rig, script
from worker.recovery import restart_lost
from workflows import memory_client

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

Story = Callable[[Rig], Awaitable[list[str]]]
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
async def plain_run(rig: Rig) -> list[str]:
    """Two messages, each answered."""
    session = rig.session()
    await rig.run(session, f"{LEAD}{MARK}")
    await rig.run(session, f"{LEAD}{MARK} again")
    await rig.state(session, "idle")
    return [session]


@story
async def tool_run(rig: Rig) -> list[str]:
    """Tools one by one and side by side."""
    session = rig.session()
    write = {"call": "write_file", "arguments": {"path": "a.txt", "content": MARK}}
    both = {
        "calls": [{"call": "read_file", "arguments": {"path": "a.txt"}}, {"call": "list_files"}]
    }
    shell = {"call": "shell", "arguments": {"command": "cat a.txt"}}
    await rig.run(session, asking(write, both, shell, saying("done")))
    await rig.state(session, "idle")
    return [session]


@story
async def queued_then_resumed(rig: Rig) -> list[str]:
    """A message waits for a slot, another is discarded."""
    busy = [rig.session() for _ in range(4)]
    for one in busy:
        await rig.send(one, asking(HANGING))
    session = rig.session()
    await rig.send(session, f"{LEAD}{MARK}")
    await rig.plain(session, "discard")
    run = (await rig.send(session, f"{LEAD}{MARK}")).run_id or ""
    await rig.cancel(busy[0])
    await rig.state(busy[0], "idle")
    await rig.resume(session)
    await rig.over(run)
    await rig.state(session, "idle")
    return [session]


@story
async def cancelled(rig: Rig) -> list[str]:
    """A cancel in the middle of a model call, one in the middle of a tool call."""
    session = rig.session()
    run = (await rig.send(session, asking({"deltas": 3000, "every_ms": 10}))).run_id or ""
    await rig.streaming(session)
    await rig.cancel(session)
    await rig.over(run)
    sleeping = {"call": "shell", "arguments": {"command": "sleep 60"}}
    run = (await rig.send(session, asking(sleeping))).run_id or ""
    await rig.event(session, "call.put")
    await rig.cancel(session)
    await rig.over(run)
    await rig.state(session, "idle")
    return [session]


@story
async def crash_recovered(rig: Rig) -> list[str]:
    """The workflow is lost in the middle of a run, and another goes on from the database."""
    session = rig.session()
    steps = asking({"call": "list_files"}, {"deltas": 50, "every_ms": 10})
    run = (await rig.send(session, steps)).run_id or ""
    await rig.streaming(session)
    await rig.handle(session).terminate("lost on purpose")
    await restart_lost(rig.client, rig.settings, rig.store)
    await rig.over(run)
    await rig.state(session, "idle")
    return [session]


@story
async def worker_restarted(rig: Rig) -> list[str]:
    """The worker stops in the middle of a model call, and another takes it over."""
    session = rig.session()
    run = (await rig.send(session, asking({"deltas": 50, "every_ms": 10}))).run_id or ""
    await rig.streaming(session)
    await rig.stop_worker()
    await rig.start_worker()
    await rig.over(run)
    await rig.state(session, "idle")
    return [session]


@story
async def rolled_over(rig: Rig) -> list[str]:
    """A run that is longer than one history."""
    session = rig.session()
    steps = {"repeat": 12, "step": {"call": "list_files"}}
    await rig.run(session, asking(steps, saying("done")))
    await rig.state(session, "idle")
    return [session]


@story
async def paused_resumed(rig: Rig) -> list[str]:
    """Pauses by the operator and by the model, each resumed."""
    session = rig.session()
    slow = {"call": "list_files", "hang_s": 0.3}
    own = {"call": "checkpoint", "arguments": {"reason": "look at this"}}
    run = (await rig.send(session, asking(slow, own, saying("done")))).run_id or ""
    paused = await rig.pause(session)
    await rig.resume(session, paused.checkpoint_id)
    row = await rig.state(session, "paused")
    await rig.resume(session, row.current_checkpoint)
    await rig.over(run)
    await rig.state(session, "idle")
    return [session]


@story
async def rolled_back(rig: Rig) -> list[str]:
    """A rollback in the middle of a run, and the message after it."""
    session = rig.session()
    await rig.send(session, asking({"deltas": 3000, "every_ms": 10}))
    await rig.streaming(session)
    paused = await rig.pause(session)
    await rig.roll_back(session, paused.checkpoint_id or "")
    await rig.run(session, f"{LEAD}{MARK}")
    await rig.state(session, "idle")
    return [session]


@story
async def ended_and_reopened(rig: Rig) -> list[str]:
    """An end in the middle of a run; the workflow that reopens the session."""
    session = rig.session()
    await rig.send(session, asking(HANGING))
    await rig.plain(session, "end")
    await rig.plain(session, "reopen")
    await rig.run(session, f"{LEAD}{MARK}")
    await rig.state(session, "idle")
    return [session]


@story
async def subagent(rig: Rig) -> list[str]:
    """A subagent that uses a tool: its workflow and that of its session."""
    session = rig.session(rig.project(TEAM))
    task = script({"say": MARK, "call": "list_files"}, saying("found"))
    call = {"call": "subagent", "arguments": {"name": "helper", "prompt": task}}
    await rig.run(session, asking(call, saying("done")))
    await rig.state(session, "idle")
    started = await rig.event(session, "subagent.started")
    return [session, f"{session}/{started.data['invocation_id']}"]


@story
async def memory_synced(rig: Rig) -> list[str]:
    """A memory is built, followed and built anew, for those who wait and those who do not."""
    project = rig.project("primary: {model: 'scripted:echo'}\nmemory: {embedding: none}\n")
    found = rig.store.read(lambda db: projects.by_id(db, project))
    notes = Path(found.path) / "memory"
    notes.mkdir()
    queue = rig.settings.task_queue
    for number, force in enumerate((False, False, True)):
        (notes / f"{number}.md").write_text(f"{MARK} note {number}\n")
        report = await memory_client.sync(
            rig.client, queue, project, command_id=new_id(), force=force, wait_s=DEADLINE_S
        )
        assert report is not None
        await memory_client.ask(rig.client, queue, project)
    await rig.handle(workflow_id(project)).result()
    return [workflow_id(project)]
