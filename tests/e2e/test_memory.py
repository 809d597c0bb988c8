"""A project's memory in the running product: notes are followed, kills are not noticed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

FILE = """
version: 1
project: {name}
memory: {{embedding: "stub:stub-embed", sync: {{watch_debounce_ms: 0}}}}
"""
NOTES = 200

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def project(make_project: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A project that remembers with the stub's embeddings."""
    name = f"remembering-{uuid4().hex[:8]}"
    return make_project(FILE.format(name=name), name=name)


def write(project: dict[str, Any], name: str, words: str) -> None:
    path = Path(project["path"]) / "memory" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(words)


def write_many(project: dict[str, Any]) -> None:
    """All of them at once: nobody sees a part."""
    folder = Path(project["path"])
    (folder / "drafts").mkdir()
    for number in range(NOTES):
        words = f"Note {number} tells of thing{number}.\n"
        (folder / "drafts" / f"note-{number:03}.md").write_text(words)
    (folder / "drafts").rename(folder / "memory" / "many")


def status_of(client: httpx2.Client, project: dict[str, Any]) -> dict[str, Any] | None:
    try:
        answer = client.get(f"/memory/{project['id']}/status")
    except httpx2.TransportError:
        return None
    found: dict[str, Any] = answer.json()
    return found if answer.status_code == 200 else None


def wait_indexed(client: httpx2.Client, project: dict[str, Any], files: int) -> dict[str, Any]:
    def indexed() -> dict[str, Any] | None:
        found = status_of(client, project)
        done = found is not None and found["files"] == files and found["sync"]["state"] == "idle"
        return found if done else None

    found = wait_for(indexed, f"{files} notes to be indexed", timeout_s=240.0)
    assert found is not None
    return found


@pytest.mark.req("O-023")
def test_a_killed_worker_goes_on_with_a_sync_and_embeds_nothing_twice(
    product: Product, client: httpx2.Client, project: dict[str, Any], stub: OpenAIStub
) -> None:
    write(project, "first", "The first note is about a kettle.\n")
    wait_indexed(client, project, 1)
    stub.embeddings.held_after = stub.embeddings.requests + 1
    write_many(project)

    def stored() -> set[str] | None:
        """What was embedded, once all of it is in the index; only the first note was before."""
        texts, found = set(stub.embeddings.texts), status_of(client, project)
        done = found["sync"]["done"] or 0 if found is not None else 0
        return texts if done >= len(texts) - 1 > 0 else None

    before = wait_for(stored, "some notes to be indexed")
    assert before is not None
    old = product.kill("worker")
    stub.embeddings.held_after = None
    product.wait_restarted("worker", old)
    found = wait_indexed(client, project, NOTES + 1)
    assert (found["dirty"], found["last_error"]) == (False, None)
    counted = Counter(stub.embeddings.texts)
    assert {counted[text] for text in before} == {1}, "what was embedded before the kill was kept"
    body = {"query": "thing123", "min_score": 0}
    hits = client.post(f"/memory/{project['id']}/search", json=body).json()["items"]
    assert hits[0]["path"] == "memory/many/note-123.md"


def test_the_command_line_searches_syncs_and_tells_how_it_stands(
    product: Product, client: httpx2.Client, project: dict[str, Any], operator: Any
) -> None:
    write(project, "tea", "The kettle stands in the pantry.\n")
    said = product.command("memory", "sync", project["id"], "--json", token=operator.token)
    assert json.loads(said.stdout)["state"] == "done", said.stderr
    said = product.command("memory", "search", project["name"], "kettle", token=operator.token)
    assert (said.returncode, "memory/tea.md:1-" in said.stdout) == (0, True), said.stderr
    said = product.command("memory", "status", project["id"], token=operator.token)
    assert "up to date" in said.stdout, said.stderr
    said = product.command("memory", "status", "no-such-project", token=operator.token)
    assert (said.returncode != 0, "no such project" in said.stderr) == (True, True)
