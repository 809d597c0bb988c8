"""A blob that is gone: waited for a while, then the run fails in words and the session lives on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from activities import refusals
from holdfast.domain.wire import BLOB_MISSING
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.moves import heads
from tests.support.blob_files import blob_file
from tests.support.local_worker import LocalWorker, script, until

HANG = {
    "call": "shell",
    "arguments": {"command": "touch began; until [ -e go ]; do sleep 0.05; done"},
}
UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "BLOB_WAIT", timedelta(seconds=2))


async def running(worker: LocalWorker) -> tuple[str, str, Path]:
    """A session with a head behind it, in the middle of a run."""
    session = worker.session(worker.project(UNCAGED))
    assert (await worker.run(session, script({"say": "first"}))).state == "done"
    run = (await worker.send(session, script(HANG, {"say": "second"}))).run_id or ""
    folder = Path(worker.row(session).working_directory)
    await until(lambda: (folder / "began").exists(), "the command to run")
    return session, run, folder


def prompt(worker: LocalWorker, session: str) -> Path:
    """A prompt of the session's own; the file of its blob."""
    blob_id = worker.store.blobs.put(b"You are brief.").id
    worker.store.write(lambda db: change(db, SessionRow, session, prompts={"primary": blob_id}))
    return blob_file(worker.store, blob_id)


async def test_a_run_whose_basis_is_gone_still_ends_and_the_next_message_works(
    worker: LocalWorker,
) -> None:
    session, run, folder = await running(worker)
    before = worker.row(session).current_head
    assert before is not None
    blob_file(worker.store, f"sha256:{before}").unlink()
    (folder / "go").touch()
    assert (await worker.over(run)).state == "done"
    row = await worker.state(session, "idle")
    assert row.active_run is None
    current = row.current_head
    assert current is not None
    state = heads.materialize(worker.store.blobs, current)
    kept = {one["id"] for one in state["collections"]["messages"]}
    assert {one.id for one in worker.messages(session)} <= kept
    assert (await worker.run(session, script({"say": "third"}))).state == "done"
    assert (await worker.plain(session, "end")) is not None
    assert (await worker.state(session, "ended")).end_reason != "failed"


async def test_a_run_that_needs_a_missing_blob_fails_in_words_and_frees_its_slot(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    file = prompt(worker, session)
    file.unlink()
    run = await worker.run(session, script({"say": "never"}))
    assert run.state == "failed"
    assert (run.error or {})["code"] == BLOB_MISSING
    assert "not in the blob store" in (run.error or {})["message"]
    row = await worker.state(session, "idle")
    assert (row.active_run, row.failure) == (None, None)
    prompt(worker, session)
    assert (await worker.run(session, script({"say": "works"}))).state == "done"


async def test_a_blob_that_arrives_late_is_waited_for(worker: LocalWorker) -> None:
    session = worker.session()
    file = prompt(worker, session)
    away = file.with_name(".on-its-way")
    file.rename(away)
    run = (await worker.send(session, script({"say": "there"}))).run_id or ""
    await worker.event(session, "run.created")
    away.rename(file)
    assert (await worker.over(run)).state == "done"
