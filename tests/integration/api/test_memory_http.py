"""Memory over HTTP, with a real Temporal and a real worker: search, sync, status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import api.memory
from holdfast.temporal import memories
from tests.stub.openai_stub import OpenAIStub
from tests.support.local_worker import LocalWorker, until
from tests.support.servers.api_server import ApiServer
from tests.support.servers.memory_service import STUB, MemoryService, memory_service

TEA = "# Tea\n\nThe kettle stands in the pantry, behind the flour.\n"
ODD = [
    '"',
    "((",
    "AND OR",
    "a*b^c:d",
    "\\",
    "漢字",
    "'; DROP TABLE chunks; --",
    "NEAR(",
    "é" * 4000,
]


@pytest.fixture
async def service(worker: LocalWorker) -> AsyncIterator[MemoryService]:
    async with memory_service(worker) as made:
        yield made


@pytest.fixture
async def embedding_service(worker: LocalWorker, stub: OpenAIStub) -> AsyncIterator[MemoryService]:
    async with memory_service(worker, STUB.format(base_url=stub.base_url)) as made:
        yield made


@pytest.mark.req("O-001", "O-035")
async def test_a_search_finds_what_was_just_written(service: MemoryService) -> None:
    project = service.project("house", tea=TEA)
    found = await service.search("house", "kettle", min_score=0)
    [hit] = found["items"]
    assert (hit["path"], hit["source"], hit["start_line"]) == ("memory/tea.md", "memory", 1)
    assert "pantry" in hit["snippet"]
    assert (found["synced"], found["stale"]) == (True, False)
    again = await service.search("house", "kettle", min_score=0)
    assert (again["synced"], again["stale"]) == (False, False)
    assert (service.worker.store.home / "memory" / f"{project['id']}.sqlite").exists()


async def test_a_memory_is_named_by_the_projects_id_or_name_and_is_its_owners(
    service: MemoryService,
) -> None:
    project = service.project("house", tea=TEA)
    assert (await service.status(project["id"]))["project_id"] == project["id"]
    assert (await service.status("house"))["project_id"] == project["id"]
    stranger = service.caller.api.operator()
    for agent in (project["id"], "house"):
        answer = await asyncio.to_thread(stranger.http.get, f"/memory/{agent}/status")
        assert answer.status_code == 404
    stranger.close()


async def test_a_name_that_two_projects_have_is_refused_with_their_ids(
    service: MemoryService,
) -> None:
    one = service.project("twin", tea=TEA)
    file = "version: 1\nproject: twin\nprimary: {model: 'scripted:echo'}\n"
    other = service.caller.project(service.worker.folder / "elsewhere", file)
    answer = await service.post("twin/search", {"query": "kettle"})
    assert answer.status_code == 409
    error = answer.json()["error"]
    assert error["details"]["ids"] == sorted([one["id"], other["id"]])
    assert "use an id" in error["message"]


async def test_a_disabled_memory_and_an_empty_question_are_refused(service: MemoryService) -> None:
    service.project("silent", "memory: {enabled: false}\n", tea=TEA)
    for path, body in (("search", {"query": "tea"}), ("sync", {})):
        answer = await service.post(f"silent/{path}", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    service.project("house", tea=TEA)
    for query in ("", "  \n"):
        answer = await service.post("house/search", {"query": query})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "validation_failed")


async def test_any_text_can_be_asked_for(service: MemoryService) -> None:
    service.project("house", tea=TEA)
    for query in ODD:
        assert isinstance((await service.search("house", query))["items"], list)


async def test_a_sync_tells_what_it_did_and_the_same_key_does_it_once(
    service: MemoryService,
) -> None:
    project = service.project("house", tea=TEA, coffee="Beans are in the cellar.\n")
    report = await service.sync("house")
    assert (report["files"], report["files_changed"], report["model"]) == (2, 2, "fts-only")
    (service.worker.folder / "house" / "memory" / "tea.md").unlink()
    first = await service.post("house/sync", {}, **{"Idempotency-Key": "once"})
    assert first.json()["report"]["files_removed"] == 1
    again = await service.post("house/sync", {}, **{"Idempotency-Key": "once"})
    assert again.json() == first.json()
    assert (await service.sync("house", force=True))["reindexed"]
    status = await service.status("house")
    assert (status["files"], status["dirty"], status["sync"]["state"]) == (1, False, "idle")
    assert status["path"].endswith(f"{project['id']}.sqlite")


async def test_without_a_worker_a_search_answers_with_what_there_is(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.project("house", tea=TEA)
    await service.sync("house")
    await service.worker.stop_worker()
    monkeypatch.setattr(api.memory, "SEARCH_WAIT_S", 0.1)
    monkeypatch.setattr(api.memory, "SYNC_WAIT_S", 0.1)
    (service.worker.folder / "house" / "memory" / "new.md").write_text("The kettle is blue.\n")
    found = await service.search("house", "kettle", min_score=0)
    assert [hit["path"] for hit in found["items"]] == ["memory/tea.md"]
    assert (found["synced"], found["stale"]) == (False, True)

    def accepted() -> bool:
        answer = service.caller.http.post("/memory/house/sync", json={})
        assert answer.status_code in (202, 503), answer.text  # 503: not sent in that short time
        return answer.status_code == 202 and answer.json()["state"] == "running"

    await until(accepted, "the sync to be taken")
    assert (await service.status("house"))["sync"]["state"] == "running"
    await service.worker.start_worker()

    def indexed() -> bool:
        status = service.caller.http.get("/memory/house/status").json()
        return status["sync"]["state"] == "idle" and not status["dirty"]

    await until(indexed, "the sync that was asked for")


@pytest.mark.req("O-001")
async def test_extra_paths_outside_are_read_only_where_the_operator_allowed_it(
    worker: LocalWorker,
) -> None:
    notes, secrets = worker.folder / "notes", worker.folder / "secrets"
    for folder in (notes, secrets):
        folder.mkdir()
        (folder / "note.md").write_text(f"A raven sits in {folder.name}.\n")
    config = f'[memory]\nembedding = "none"\nallow_paths = ["{notes}"]\ndirectory = "a/b"\n'
    async with memory_service(worker, config) as service:
        paths = f"memory: {{extra_paths: ['{notes}', '{secrets}', '../secrets', 'docs']}}\n"
        project = service.project("house", paths, tea=TEA)
        found = await service.search("house", "raven", min_score=0)
        assert (worker.store.home / "a" / "b" / f"{project['id']}.sqlite").exists()
        assert ["notes" in hit["snippet"] for hit in found["items"]] == [True]
        warnings = (await service.status("house"))["warnings"]
    assert [str(secrets) in warnings[0], "../secrets" in warnings[1]] == [True, True]
    assert len(warnings) == 2


@pytest.mark.req("O-030")
async def test_a_provider_that_fails_leaves_a_search_by_words_that_says_so(
    embedding_service: MemoryService, stub: OpenAIStub
) -> None:
    service = embedding_service
    service.project("house", tea=TEA)
    found = await service.search("house", "kettle", min_score=0)
    assert found["items"][0]["vector_score"] is not None
    assert stub.embeddings.texts
    stub.embeddings.always = 401
    found = await service.search("house", "pantry", min_score=0)
    assert [hit["path"] for hit in found["items"]] == ["memory/tea.md"]
    assert found["items"][0]["text_score"] is not None
    assert "answered 401" in found["warnings"][0]
    service.project("new", tea=TEA)
    found = await service.search("new", "pantry", min_score=0)
    assert [hit["path"] for hit in found["items"]] == ["memory/tea.md"]
    assert "built with none:fts-only" in found["warnings"][0]


async def test_a_wrong_embedder_is_a_warning_and_words_are_found(service: MemoryService) -> None:
    service.project("house", "memory: {embedding: 'scripted:nothing'}\n", tea=TEA)
    found = await service.search("house", "kettle", min_score=0)
    assert len(found["items"]) == 1
    assert "has no embeddings" in found["warnings"][0]


async def test_without_temporal_a_search_answers_and_a_sync_says_that_it_is_away(
    own_api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "AWAY_S", 0.0)
    caller = own_api.operator()
    folder = tmp_path / "home-alone"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "tea.md").write_text(TEA)
    project = await asyncio.to_thread(caller.project, folder)
    path = f"/memory/{project['id']}"
    answer = await asyncio.to_thread(caller.http.post, f"{path}/search", json={"query": "tea"})
    assert (answer.status_code, answer.json()["stale"]) == (200, True)
    answer = await asyncio.to_thread(caller.http.post, f"{path}/sync")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    status = (await asyncio.to_thread(caller.http.get, f"{path}/status")).json()
    assert (status["exists"], status["dirty"], status["sync"]["state"]) == (False, True, "unknown")
    caller.close()


async def test_a_damaged_index_is_no_error_of_the_search_and_is_built_anew(
    service: MemoryService,
) -> None:
    project = service.project("house", tea=TEA)
    await service.sync("house")
    file = service.worker.store.home / "memory" / f"{project['id']}.sqlite"
    file.write_bytes(b"no database" * 1000)
    found = await service.search("house", "kettle")
    assert [hit["path"] for hit in found["items"]] == ["memory/tea.md"]
    assert (found["synced"], found["stale"]) == (True, False)
