"""A machine that can build no cage: what runs or writes is asked about, reading goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from tests.support.control.asked_calls import decide, pending
from tests.support.local_worker import LocalWorker, script
from tests.support.servers.caged_programs import WITHOUT_CAGES, before
from tests.support.servers.terminal_hosts import TestHost
from tests.support.stored_rows import tool_calls_of


@pytest.fixture(scope="module")
def bare_host() -> Iterator[TestHost]:
    """A host in surroundings that allow neither namespaces nor Landlock."""
    with TestHost(*before(WITHOUT_CAGES)) as host:
        yield host


@pytest.fixture
async def worker(
    temporal: str, bare_host: TestHost, sqlite_store: OpenStore, tmp_path: Path
) -> AsyncIterator[LocalWorker]:
    async with LocalWorker(sqlite_store, tmp_path, temporal, bare_host, Config()) as running:
        yield running


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("shell", {"command": "echo ran > ran"}),
    ("write_file", {"path": "written", "content": "x"}),
    ("edit_file", {"path": "old", "old_string": "old", "new_string": "new"}),
    ("read_file", {"path": "old"}),
]


async def states(worker: LocalWorker, primary: str) -> tuple[dict[str, tuple[str, str]], Path]:
    """How each call ended and with which words, and the folder it was made in."""
    session = worker.session(worker.project(f"primary: {{model: 'scripted:echo', {primary}}}\n"))
    folder = Path(worker.row(session).working_directory)
    (folder / "old").write_text("old words\n")
    steps = [{"call": name, "arguments": arguments} for name, arguments in CALLS]
    run = await worker.run(session, script(*steps, {"say": "seen"}))
    assert run.state == "done", run.error
    rows = worker.store.read(lambda db: tool_calls_of(db, run.id))
    return {row.tool_name: (row.state, str(row.output)) for row in rows}, folder


async def test_commands_and_edits_are_asked_about_and_reading_goes_on(worker: LocalWorker) -> None:
    """What is allowed runs without a cage; what is denied is not made."""
    session = worker.session(worker.project("primary: {model: 'scripted:echo'}\n"))
    folder = Path(worker.row(session).working_directory)
    (folder / "old").write_text("old words\n")
    steps = [{"call": name, "arguments": arguments} for name, arguments in CALLS]
    sent = await worker.send(session, script(*steps, {"say": "seen"}))
    for tool, decision in (("shell", "allow"), ("write_file", "deny"), ("edit_file", "allow")):
        approval = await pending(worker, session)
        assert (approval.tool, approval.uncaged) == (tool, True)
        assert "install bubblewrap" in approval.reason
        await decide(worker, approval, decision)
    run = await worker.over(sent.run_id or "")
    assert run.state == "done", run.error
    rows = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert {row.tool_name: row.state for row in rows} == {
        "shell": "done",
        "write_file": "failed",
        "edit_file": "done",
        "read_file": "done",
    }
    assert sorted(path.name for path in folder.iterdir()) == [".holdfast", "old", "ran"]
    assert (folder / "old").read_text() == "new words\n"


async def test_an_agent_whose_cage_is_disabled_works_there(worker: LocalWorker) -> None:
    ended, folder = await states(worker, "cage: disabled")
    assert {name: state for name, (state, _) in ended.items()} == dict.fromkeys(ended, "done")
    assert (folder / "ran").exists()
    assert (folder / "written").exists()
