"""A worker whose store takes no writes in the middle of a run: it says so, waits, and goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from activities.stream import DeltaStream
from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.trouble import StoreUnwritable
from holdfast.storage.upkeep import consistency
from tests.support.local_worker import DEADLINE_S, LocalWorker, script, until
from tests.support.stored_rows import frames_of
from tests.support.unwritable_store import full_disk, read_only
from tests.support.workflow_double import WorkflowDouble
from workflows import steps

Trouble = Callable[[OpenStore], AbstractContextManager[None]]
TROUBLES = [
    pytest.param(full_disk, "cannot write: the disk is full", id="full"),
    pytest.param(read_only, "cannot write: the database is read-only", id="read-only"),
]
WIDE = {"providers": {"wide": {"driver": "scripted", "context_window": 1_000_000}}}
COMMAND = "echo once >> ran; while [ ! -e go ]; do sleep 0.02; done"
WAITING = {"call": "shell", "arguments": {"command": COMMAND}}
# Each piece is larger than a page, so that it finds no room in pages that are there already.
PIECE, PIECES = "0123456789" * 500 + " ", 4


@asynccontextmanager
async def during(trouble: Trouble, store: OpenStore) -> AsyncIterator[None]:
    """The trouble, made in a thread: it waits for the connection that the worker writes with."""
    made = trouble(store)
    await asyncio.to_thread(made.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(made.__exit__, None, None, None)


async def last_words(worker: LocalWorker, session_id: str) -> str:
    """What Temporal, and so its UI, shows of the step that fails."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        description = await worker.handle(session_id).describe()
        pending = description.raw_description.pending_activities
        if pending and pending[0].last_failure.message:
            return pending[0].last_failure.message
        assert time.monotonic() < deadline, "no step failed"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(("trouble", "words"), TROUBLES)
async def test_a_run_outlasts_a_store_that_takes_no_writes(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, words: str
) -> None:
    soon = timedelta(milliseconds=100)
    for name in ("call_model", "call_tool"):
        patient = replace(getattr(steps, name), first_wait=soon, longest_wait=soon, attempts=0)
        monkeypatch.setattr(steps, name, patient)
    worker.config = Config.model_validate(WIDE)
    session = worker.session(worker.project("primary: {model: 'wide:echo'}\n"))
    await worker.run(session, "before")
    said, folder = PIECE * PIECES, Path(worker.row(session).working_directory)
    content = script(WAITING, {"say": said, "chunks": PIECES})
    run = (await worker.send(session, content)).run_id
    await until((folder / "ran").exists, "the command to run")
    async with during(trouble, worker.store):
        (folder / "go").touch()
        assert words in await last_words(worker, session)
    assert (await worker.over(run or "")).state == "done"
    await worker.state(session, "idle")
    assert (folder / "ran").read_text() == "once\n"
    assert [one.content for one in worker.messages(session) if one.role == "primary"][-1] == said
    assert PIECE not in str(await worker.handle(session).fetch_history())
    assert (await worker.run(session, "after")).state == "done"
    assert [text for text in worker.texts(session) if text in ("before", "after")] == [
        "before",
        "after",
    ]
    assert consistency.check(worker.store, "deep").issues == []


@pytest.mark.parametrize(("trouble", "words"), TROUBLES)
async def test_words_that_could_not_be_streamed_at_once_are_streamed_later(
    sqlite_store: OpenStore, trouble: Trouble, words: str
) -> None:
    session_id = WorkflowDouble(sqlite_store).session()
    stream = DeltaStream(
        sqlite_store, session_id=session_id, run_id="r", message_id="m", agent_path="primary"
    )

    def shown() -> str:
        found = sqlite_store.read(lambda db: frames_of(db, session_id))
        return "".join(frame.payload["text"] for frame in found)

    async with during(trouble, sqlite_store):
        for number in range(PIECES):
            stream.add(f"{number} {PIECE}")
            await asyncio.sleep(0.01)
        with pytest.raises(StoreUnwritable, match=words):
            await stream._flush()
        assert shown() == ""
    stream.add("the last")
    await until(lambda: shown() == stream.text, "every word, in order and once")
    await stream.close()
    assert shown() == stream.text
