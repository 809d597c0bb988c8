"""The sync of a memory as a workflow: one writer, one more round, nothing private in history."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

import activities.memory
import workflows.memory
from activities.memory import Progress
from holdfast.domain.memory_steps import workflow_id
from holdfast.temporal.connection import Connection
from holdfast.temporal.memories import MemoryWorkflows
from tests.stub.openai_stub import OpenAIStub
from tests.support.local_worker import LocalWorker, script, until
from tests.support.servers.memory_service import STUB, MemoryService, memory_service

SECRET = "the raven sleeps at noon"


@pytest.fixture
async def service(worker: LocalWorker, stub: OpenAIStub) -> AsyncIterator[MemoryService]:
    async with memory_service(worker, STUB.format(base_url=stub.base_url)) as made:
        yield made


async def rounds_of(handle: WorkflowHandle) -> int:  # type: ignore[type-arg]
    """How many rounds its history has."""
    history = await handle.fetch_history()
    scheduled = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    return sum(event.event_type == scheduled for event in history.events)


async def ask(service: MemoryService, project_id: str) -> None:
    await service.worker.memories.ask(project_id)


async def test_requests_during_a_round_lead_to_one_more(
    service: MemoryService, stub: OpenAIStub
) -> None:
    project = service.project("house", raven=SECRET)
    stub.embeddings.held_after = stub.embeddings.requests
    await ask(service, project["id"])
    await until(lambda: stub.embeddings.requests, "the first round to embed")
    (service.worker.folder / "house" / "memory" / "more.md").write_text("A second note.\n")
    for _ in range(5):
        await ask(service, project["id"])
    status = await service.status("house")
    assert status["sync"]["state"] == "running"
    stub.embeddings.held_after = None
    handle = service.worker.client.get_workflow_handle(workflow_id(project["id"]))
    await handle.result()
    assert await rounds_of(handle) == 2
    assert (await service.status("house"))["files"] == 2


async def test_a_workflow_that_is_asked_without_end_goes_on_in_a_fresh_history(
    service: MemoryService, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.memory, "ROUNDS_MAX", 1)
    project = service.project("house", raven=SECRET)
    stub.embeddings.held_after = stub.embeddings.requests
    await ask(service, project["id"])
    await until(lambda: stub.embeddings.requests, "the first round to embed")
    handle = service.worker.client.get_workflow_handle(workflow_id(project["id"]))
    first = (await handle.describe()).run_id
    (service.worker.folder / "house" / "memory" / "more.md").write_text("A second note.\n")
    await ask(service, project["id"])
    stub.embeddings.held_after = None
    await handle.result()
    assert (await handle.describe()).run_id != first
    assert (await service.status("house"))["files"] == 2


async def test_a_history_holds_ids_and_counts_but_no_word(
    service: MemoryService,
) -> None:
    project = service.project("house", raven=SECRET)
    await service.sync("house")
    handle = service.worker.client.get_workflow_handle(workflow_id(project["id"]))
    await handle.result()
    history = await handle.fetch_history()
    text = json.dumps(history.to_json_dict())
    for event in history.events:
        text += event.SerializeToString().decode("utf-8", "replace")
    assert project["id"] in text
    assert "raven" not in text


async def test_a_cancelled_sync_stops_and_leaves_the_old_index(
    service: MemoryService, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Progress] = []

    class Kept(Progress):
        def __init__(self, attempt: int) -> None:
            super().__init__(attempt)
            begun.append(self)

    monkeypatch.setattr(activities.memory, "Progress", Kept)
    project = service.project("house", raven=SECRET)
    await service.sync("house")
    (service.worker.folder / "house" / "memory" / "more.md").write_text("A second note.\n")
    stub.embeddings.held_after = stub.embeddings.requests
    before = stub.embeddings.requests
    await ask(service, project["id"])
    await until(lambda: stub.embeddings.requests > before, "the round to embed")
    handle = service.worker.client.get_workflow_handle(workflow_id(project["id"]))
    await handle.cancel()
    await until(begun[-1].stop.is_set, "the worker to hear of it")
    stub.embeddings.held_after = None
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    found = await service.search("house", "raven", min_score=0)
    assert "memory/raven.md" in [hit["path"] for hit in found["items"]]


async def test_trouble_that_passes_is_overcome(service: MemoryService, stub: OpenAIStub) -> None:
    service.project("house", raven=SECRET)
    stub.embeddings.faults.append(503)
    report = await service.sync("house")
    assert report["files"] == 1
    assert (await service.status("house"))["dirty"] is False


async def test_the_tool_finds_what_the_project_remembers(service: MemoryService) -> None:
    project = service.project("house", raven=SECRET)
    worker = service.worker
    worker.operator_id = service.caller.id
    session = worker.session(project["id"])
    asked = script({"call": "memory_search", "arguments": {"query": "raven"}}, {"say": "done"})
    run = await worker.run(session, asked)
    assert run.state == "done"
    [answer] = [one for one in worker.messages(session) if one.role == "tool"]
    found = json.loads(answer.content)
    assert found["count"] == 1
    [hit] = found["hits"]
    assert set(hit) == {"path", "start_line", "end_line", "score", "snippet"}
    assert hit["path"] == "memory/raven.md"
    assert SECRET in hit["snippet"]


async def test_who_does_not_wait_for_a_sync_leaves_no_error_in_the_log(
    service: MemoryService, caplog: pytest.LogCaptureFixture
) -> None:
    project = service.project("house", raven=SECRET)
    settings = service.worker.settings.model_copy(update={"task_queue": "served-by-nobody"})
    unserved = MemoryWorkflows(Connection(settings, service.worker.client))
    gc.collect()  # what others left behind is not meant
    caplog.clear()
    report = await unserved.sync(project["id"], command_id="c-1", force=False, wait_s=0.1)
    assert report is None
    for _ in range(20):  # its request is cancelled, which takes a few turns of the loop
        await asyncio.sleep(0)
    gc.collect()
    assert "never retrieved" not in caplog.text
