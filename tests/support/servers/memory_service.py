"""A project with notes, a worker and an API over one store: memory as the product serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import api.memory
from holdfast.settings.config import Config, parse_config
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import projects
from tests.support.local_worker import DEADLINE_S, LocalWorker
from tests.support.servers.api_server import ApiServer, Caller
from worker import parts

WORDS_ONLY = '[memory]\nembedding = "none"\n'
STUB = """
[providers.stub]
driver = "openai"
base_url = "{base_url}"
api_key = "test"
[memory]
embedding = "stub:stub-embed"
"""


def configured(text: str = WORDS_ONLY) -> Config:
    """A configuration, as config.toml would say it."""
    return parse_config(text.encode(), Path("config.toml"))


class MemoryService:
    """One caller and the worker. The worker lives on this loop: calls go through threads."""

    def __init__(self, worker: LocalWorker, caller: Caller) -> None:
        self.worker = worker
        self.caller = caller

    def project(self, name: str, text: str = "", **notes: str) -> dict[str, Any]:
        """A loaded folder with notes in its `memory` folder; `text` is more of its file."""
        folder = self.worker.folder / name
        file = f"version: 1\nproject: {name}\nprimary: {{model: 'scripted:echo'}}\n{text}"
        (folder / "memory").mkdir(parents=True, exist_ok=True)
        for title, words in notes.items():
            (folder / "memory" / f"{title}.md").write_text(words)
        return self.caller.project(folder, file)

    def row(self, project_id: str) -> Project:
        """The project as the database has it."""
        return self.worker.store.read(lambda db: projects.by_id(db, project_id))

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """A POST below /memory."""
        return await asyncio.to_thread(
            self.caller.http.post, f"/memory/{path}", json=body or {}, headers=headers
        )

    async def search(self, agent: str, query: str, **body: Any) -> dict[str, Any]:
        """A search that is answered."""
        answer = await self.post(f"{agent}/search", {"query": query, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def sync(self, agent: str, *, force: bool = False) -> dict[str, Any]:
        """A sync that comes to its end."""
        answer = await self.post(f"{agent}/sync", {"force": force})
        assert answer.status_code == 200, answer.text
        report: dict[str, Any] = answer.json()["report"]
        return report

    async def status(self, agent: str) -> dict[str, Any]:
        """How the memory stands."""
        answer = await asyncio.to_thread(self.caller.http.get, f"/memory/{agent}/status")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@asynccontextmanager
async def memory_service(
    worker: LocalWorker, config: str = WORDS_ONLY
) -> AsyncIterator[MemoryService]:
    """The API beside the worker, both with this config.toml."""
    worker.config = configured(config)
    server = ApiServer(worker.store, worker.store.home)
    (worker.store.home / "config.toml").write_text(config)
    server.settings = server.settings.model_copy(
        update={
            "temporal_address": worker.settings.temporal_address,
            "task_queue": worker.settings.task_queue,
        }
    )
    await asyncio.to_thread(server.start)
    caller = server.operator()
    try:
        with patient():
            yield MemoryService(worker, caller)
    finally:
        caller.close()
        await asyncio.to_thread(server.stop)


@contextmanager
def patient() -> Iterator[None]:
    """Searches and syncs wait for as long as a busy machine needs."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name in (
            (api.memory, "SEARCH_WAIT_S"),
            (api.memory, "SYNC_WAIT_S"),
            (parts, "SEARCH_WAIT_S"),
        ):
            patch.setattr(place, name, DEADLINE_S)
        yield
