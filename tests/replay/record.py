"""Records the histories anew: `python -m tests.replay.record [story …]`. They are never edited."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from holdfast.settings.config import Config
from holdfast.storage.database.opening import open_store
from tests.replay import control_stories  # noqa: F401 (it adds its stories)
from tests.replay.stories import ROLLING, STORIES, Story
from tests.support.local_worker import LocalWorker
from tests.support.servers.temporal_server import TemporalServer
from tests.support.servers.terminal_hosts import TestHost

FOLDER = Path(__file__).with_name("histories")
ROLL_EARLY = "limit.historyCount.suggestContinueAsNew=60"
RUNS_MAX = 20
MACHINE = frozenset({"stackTrace"})


def main(names: list[str]) -> None:
    """Tell the stories and keep what Temporal has of each."""
    FOLDER.mkdir(exist_ok=True)
    with TestHost() as host:
        for rolling in (False, True):
            wanted = [name for name in names if (name in ROLLING) == rolling]
            server = TemporalServer(*([ROLL_EARLY] if rolling else [])).start()
            try:
                for name in wanted:
                    asyncio.run(record(name, STORIES[name], server.address, host))
            finally:
                server.stop()


async def record(name: str, tell: Story, address: str, host: TestHost) -> None:
    """One story in a home of its own."""
    for old in FOLDER.glob(f"{name}.*.json"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="hf-replay-") as home:
        store = open_store(None, Path(home) / "home", synchronous="OFF")
        async with LocalWorker(store, Path(home), address, host, Config()) as worker:
            ids = await tell(worker)
            histories = [
                one for workflow_id in ids for one in await _histories(worker, workflow_id)
            ]
        store.close()
    for number, history in enumerate(histories, start=1):
        kept = json.dumps(without_machine(json.loads(history.to_json())), separators=(",", ":"))
        kept = kept.replace(socket.gethostname(), "recorder")  # in the names of sticky queues
        kept = kept.replace(f"{home}/home", "recorder")  # in what an error says of a file
        (FOLDER / f"{name}.{number}.json").write_text(kept + "\n", encoding="utf-8")


def without_machine(value: Any) -> Any:
    """The history without the names and paths of the machine that it was recorded on."""
    if isinstance(value, dict):
        return {
            key: "recorder" if key == "identity" else without_machine(inner)
            for key, inner in value.items()
            if key not in MACHINE
        }
    return [without_machine(one) for one in value] if isinstance(value, list) else value


async def _histories(worker: LocalWorker, workflow_id: str) -> list[WorkflowHistory]:
    """Every run of the workflow, the last first."""
    found: list[WorkflowHistory] = []
    run_id: str | None = None
    while len(found) < RUNS_MAX:
        handle = worker.client.get_workflow_handle(workflow_id, run_id=run_id)
        history = await handle.fetch_history()
        found.append(history)
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
        if not run_id:
            return found
    return found


if __name__ == "__main__":
    main(sys.argv[1:] or list(STORIES))
