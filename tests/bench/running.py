"""A product to measure: with a stub for its model, a project, and clients on its sockets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from websockets.sync.client import ClientConnection, connect

from tests.conftest import CONFIG
from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.product import Product
from tests.support.waiting import wait_for


class Measured:
    """The product with one operator's client."""

    def __init__(self, product: Product, stub: OpenAIStub) -> None:
        self.product = product
        self.stub = stub
        self.token = product.token()
        self.http: httpx2.Client = product.api(self.token)
        self._folder = tempfile.TemporaryDirectory(prefix="hf-bench-")
        self.project_id = self.project("bench", "limits: {running_sessions: 64}")

    def project(self, name: str, text: str) -> str:
        """A project in a folder of its own; its id."""
        folder = Path(self._folder.name) / name
        (folder / ".holdfast").mkdir(parents=True)
        said = f"version: 1\nproject: {name}\n{text}\n"
        (folder / ".holdfast" / "project.yaml").write_text(said)
        loaded = self.http.post("/projects/load", json={"path": str(folder), "trust": True})
        found: str = loaded.json()["id"]
        return found

    def session(self, project_id: str | None = None) -> str:
        """A new session's id."""
        answer = self.http.post(f"/projects/{project_id or self.project_id}/sessions", json={})
        found: str = answer.json()["id"]
        return found

    def send(self, session_id: str, content: str, model: str | None = None) -> str:
        """Post a message; its run's id."""
        body = (
            {"content": content} if model is None else {"content": content, "model_override": model}
        )
        answer = self.http.post(f"/sessions/{session_id}/messages", json=body)
        assert answer.status_code == 202, answer.text
        found: str = answer.json()["run"]["id"]
        return found

    def wait(self, session_id: str) -> None:
        """Until the session is idle again."""
        path = f"/sessions/{session_id}"
        wait_for(lambda: self.http.get(path).json()["state"] == "idle", "idle", timeout_s=120.0)

    def socket(self, session_id: str, *, observe: bool = True) -> ClientConnection:
        """A socket that has said hello and was welcomed."""
        address = f"ws{self.product.url.removeprefix('http')}/api/v1/sessions/{session_id}/socket"
        socket = connect(
            address + ("?observe=1" if observe else ""),
            additional_headers={"Authorization": f"Bearer {self.token}"},
            compression=None,
            max_size=64 * 1024 * 1024,
        )
        socket.send(json.dumps({"channel": "control", "type": "hello", "payload": {}}))
        hear(socket, "welcome")
        return socket

    def close(self) -> None:
        """Give back connections and the folder."""
        self.http.close()
        self._folder.cleanup()


def hear(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next frame of this type."""
    while True:
        frame: dict[str, Any] = json.loads(socket.recv(timeout=120.0))
        if frame["type"] == kind:
            return frame


@contextmanager
def measured_product() -> Iterator[Measured]:
    """A product of its own that is gone afterwards."""
    with OpenAIStub() as stub:
        product = Product(config=CONFIG.format(base_url=stub.base_url))
        try:
            measured = Measured(product.start(), stub)
            yield measured
            measured.close()
        finally:
            product.close()
