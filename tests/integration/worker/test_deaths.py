"""SIGKILL of the worker before and after every activity of a pause, a resume and a rollback."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.commands import Answer, Command, Pause, Resume, RollBack
from holdfast.domain.errors import Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.moves import checkpoints
from holdfast.storage.upkeep import consistency
from tests.support.local_worker import LocalWorker, script, until

CarryOut = Callable[[], Coroutine[Any, Any, None]]
UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"
SHELL = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo x >> ends"
# Every activity of the operation: `test_no_other_activity_belongs_to_it` holds the list complete.
ACTIVITIES = {
    "pause": ("pause_session", "suspend_processes", "snapshot_tree"),
    "resume": ("resume_session", "resume_processes"),
    "rollback": ("roll_back_session", "kill_processes"),
    "rollback to a message": ("roll_back_session", "kill_processes"),
}
BOUNDARIES = [
    (operation, f"{when} {name}")
    for operation, names in ACTIVITIES.items()
    for name in names
    for when in ("before", "after")
]
# One of each operation in `make test`, the rest in `make torture`.
QUICK = {
    ("pause", "after pause_session"),
    ("rollback", "before roll_back_session"),
    ("rollback to a message", "after roll_back_session"),
}


class Scene:
    """A session that waits in a shell, served by a worker that can be told where to die."""

    def __init__(self, worker: LocalWorker, folder: Path) -> None:
        self.worker = worker
        self.control = folder
        self.session = worker.session(worker.project(UNCAGED))
        self.folder = Path(worker.row(self.session).working_directory)
        self.run = ""
        self._worker: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[bytes] | None = None

    # The worker ---------------------------------------------------------------------------------

    async def start_worker(self) -> None:
        """Until it says that it serves."""
        settings = self.worker.settings
        mine = {
            "HOLDFAST_HOME": str(settings.home),
            "HOLDFAST_TEMPORAL_ADDRESS": settings.temporal_address,
            "HOLDFAST_TASK_QUEUE": settings.task_queue,
            "HOLDFAST_TERMINAL_SOCKET": str(settings.terminal_socket),
        }
        self._worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.dying_worker", str(self.control)),
            cwd=Path(__file__).parents[3],
            env={**os.environ, **mine},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self._worker.stdout is not None
        said = []
        while b"worker.ready" not in (line := await self._worker.stdout.readline()):
            said.append(line.decode())
            assert line, "the worker ended:\n" + "".join(said)
        self._reader = asyncio.create_task(self._worker.stdout.read())

    async def death(self) -> None:
        """Until the worker died where it was told to."""
        assert self._worker is not None
        async with asyncio.timeout(120):
            assert await self._worker.wait() == -signal.SIGKILL

    async def stop_worker(self) -> None:
        """Whatever became of it."""
        if self._worker is not None:
            if self._worker.returncode is None:
                self._worker.kill()
            await self._worker.wait()
        if self._reader is not None:
            await self._reader

    def arm(self, boundary: str) -> None:
        """From here on activities are counted, and one boundary is the worker's last."""
        (self.control / "draft").write_text(boundary)
        (self.control / "draft").rename(self.control / "armed")

    def passed(self) -> list[str]:
        """The activities since then."""
        path = self.control / "passed"
        return path.read_text().split() if path.exists() else []

    # The session --------------------------------------------------------------------------------

    async def begin(self) -> None:
        """A run that waits in its shell."""
        call = {"call": "shell", "arguments": {"command": SHELL}}
        answer = await self.worker.send(self.session, script(call, {"say": "over"}))
        self.run = answer.run_id or ""
        await until((self.folder / "pid").exists, "the command to begin")

    async def paused(self) -> Checkpoint:
        """The same, at a checkpoint whose files are saved."""
        await self.worker.pause(self.session)
        await until(lambda: self.points()[0].tree, "the files to be saved")
        return self.points()[0]

    def points(self) -> list[Checkpoint]:
        """The session's checkpoints."""
        return self.worker.store.read(lambda db: checkpoints.of_session(db, self.session, limit=9))

    async def ask(self, name: str, command: Command) -> Answer:
        """Send the same command until it is answered, as a client with its key does."""
        while True:
            try:
                return await self.worker.command(self.session, name, command)
            except Unavailable:
                assert self.worker.row(self.session).state in {"running", "paused", "idle"}

    async def finish(self) -> None:
        """Let the command end: it ran once, whoever died."""
        (self.folder / "go").touch()
        assert (await self.worker.over(self.run)).state == "done"
        assert (self.folder / "ends").read_text() == "x\n"
        assert self.worker.texts(self.session)[-1] == "over"


@pytest.fixture
async def scene(worker: LocalWorker, tmp_path: Path) -> AsyncIterator[Scene]:
    """Served by the dying worker alone; `worker.start_worker` brings a sound one."""
    await worker.stop_worker()
    control = tmp_path / "control"
    control.mkdir()
    made = Scene(worker, control)
    await made.start_worker()
    try:
        yield made
    finally:
        await made.stop_worker()


async def pause(scene: Scene) -> CarryOut:
    """Ready to pause; what is sent, and what holds afterwards."""
    await scene.begin()
    command = Pause(
        command_id=new_id(), user_id=scene.worker.operator_id, checkpoint_id=new_id(), reason="look"
    )

    async def carry_out() -> None:
        answer = await scene.ask("checkpoint", command)
        assert (answer.state, answer.checkpoint_id) == ("paused", command.checkpoint_id)
        assert [point.id for point in scene.points()] == [command.checkpoint_id]
        assert scene.worker.row(scene.session).current_checkpoint == command.checkpoint_id
        await until(lambda: scene.points()[0].tree, "the files to be saved")
        await scene.worker.resume(scene.session, command.checkpoint_id)
        await scene.finish()

    return carry_out


async def resume(scene: Scene) -> CarryOut:
    """Ready to resume."""
    await scene.begin()
    point = await scene.paused()
    command = Resume(command_id=new_id(), user_id=scene.worker.operator_id, checkpoint_id=point.id)

    async def carry_out() -> None:
        answer = await scene.ask("resume", command)
        assert (answer.state, answer.run_id) == ("running", scene.run)
        await scene.finish()
        assert scene.worker.kinds(scene.session).count("checkpoint.resumed") == 1

    return carry_out


async def rollback(scene: Scene) -> CarryOut:
    """Ready to roll back, with the files."""
    (scene.folder / "kept").write_text("then")
    await scene.begin()
    point = await scene.paused()
    (scene.folder / "kept").write_text("now")
    command = RollBack(
        command_id=new_id(),
        user_id=scene.worker.operator_id,
        checkpoint_id=point.id,
        restore_files=True,
    )

    async def carry_out() -> None:
        answer = await scene.ask("rollback", command)
        assert answer.state == scene.worker.row(scene.session).state == "idle"
        assert (scene.folder / "kept").read_text() == "then"
        assert scene.worker.run_row(scene.run).state == "cancelled"
        assert scene.worker.kinds(scene.session).count("checkpoint.rolled_back") == 1
        pid = int((scene.folder / "pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists(), "the command to be gone")
        assert (await scene.worker.run(scene.session, "again")).state == "done"

    return carry_out


async def rollback_to_message(scene: Scene) -> CarryOut:
    """Ready to roll a paused run back to its message, with the files."""
    (scene.folder / "kept").write_text("then")
    await scene.begin()
    await scene.paused()
    (scene.folder / "kept").write_text("now")
    asked = scene.worker.run_row(scene.run).operator_message
    said = len(scene.worker.messages(scene.session))
    command = RollBack(
        command_id=new_id(),
        user_id=scene.worker.operator_id,
        checkpoint_id=new_id(),
        message_id=asked,
        restore_files=True,
    )

    async def carry_out() -> None:
        answer = await scene.ask("rollback", command)
        assert answer.state == scene.worker.row(scene.session).state == "idle"
        # The result of the command that is killed first may be stored before the rollback.
        assert answer.messages_superseded in (said, said + 1)
        assert (scene.folder / "kept").read_text() == "then"
        assert scene.worker.kinds(scene.session).count("checkpoint.rolled_back") == 1
        made = [point for point in scene.points() if point.created_by == "message"]
        assert [point.id for point in made] == [command.checkpoint_id]
        assert (await scene.worker.run(scene.session, "again")).state == "done"

    return carry_out


OPERATIONS = {
    "pause": pause,
    "resume": resume,
    "rollback": rollback,
    "rollback to a message": rollback_to_message,
}


@pytest.mark.req("K-004", "K-140")
@pytest.mark.parametrize(
    ("operation", "boundary"),
    [
        pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow, id="-".join(one))
        for one in BOUNDARIES
    ],
)
async def test_it_is_done_or_not_done_and_done_once_when_it_is_asked_again(
    scene: Scene, operation: str, boundary: str
) -> None:
    carry_out = await OPERATIONS[operation](scene)
    scene.arm(boundary)
    async with asyncio.TaskGroup() as group:
        group.create_task(carry_out())
        await scene.death()
        row = scene.worker.row(scene.session)
        assert row.state in {"running", "paused", "idle"}
        assert (row.state == "paused") == (row.current_checkpoint is not None)
        await scene.worker.start_worker()
    assert consistency.check(scene.worker.store, "deep").view()["issues"] == []


@pytest.mark.slow
@pytest.mark.parametrize("operation", ACTIVITIES)
async def test_no_other_activity_belongs_to_it(scene: Scene, operation: str) -> None:
    carry_out = await OPERATIONS[operation](scene)
    scene.arm("never")

    def enough() -> bool:
        return set(scene.passed()) >= set(ACTIVITIES[operation])

    async with asyncio.TaskGroup() as group:
        group.create_task(carry_out())
        await until(enough, "every activity of the operation")
        first = scene.passed()[: len(ACTIVITIES[operation])]
        assert set(first) == set(ACTIVITIES[operation])
