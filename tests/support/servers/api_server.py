"""The API in this process, on a real port, over a real store; only the workflows are doubled."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import uvicorn
from websockets.sync.client import ClientConnection, connect

from api.main import server
from api.services import Services, make_services
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import operators
from holdfast.supervisor import ports
from tests.support.sessions_double import SessionsDouble
from tests.support.waiting import wait_for

CONFIG = '[providers.stub]\ndriver = "scripted"\n[aliases]\ndefault = "stub:one"\n'


class ApiServer:
    """A running API; `double` plays the workflows."""

    def __init__(
        self, store: OpenStore, home: Path, *, ping_s: float | None = None, config: str = CONFIG
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(config)
        self.store = store
        self.ping_s = ping_s
        self.port = ports.free_port()
        self.settings = Settings(
            home=home,
            bind=f"127.0.0.1:{self.port}",
            database_url=store.url,
            temporal_address="127.0.0.1:1",
        )
        self.double = SessionsDouble(store)
        self.url = f"http://127.0.0.1:{self.port}"
        self.services: Services | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> ApiServer:
        """Serve in a thread of its own."""
        self._server = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_for(lambda: self._server is not None and self._server.started, "the API to serve")
        return self

    def stop(self) -> None:
        """Stop as SIGTERM does."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(timeout=120.0)
        assert not self._thread.is_alive()
        self._server = None

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            self.services = make_services(self.settings, self.store)
            self.services.commands = self.double
            made = server(self.services)
            if self.ping_s is not None:
                made.config.ws_ping_interval = made.config.ws_ping_timeout = self.ping_s
            self._server = made
            await self._server.serve()

        asyncio.run(serve())

    @property
    def app(self) -> Any:
        """The application that is being served."""
        assert self._server is not None
        return self._server.config.app

    def operator(self) -> Caller:
        """A fresh operator and its client."""
        name = f"test-{uuid4().hex[:12]}"

        def add(db: Db) -> tuple[str, str]:
            row = operators.add(db, name)
            return row.id, operators.issue_token(db, row.id)

        operator_id, token = self.store.write(add)
        return Caller(self, operator_id, token)


class Caller:
    """One operator's HTTP client and sockets."""

    def __init__(self, api: ApiServer, operator_id: str, token: str) -> None:
        self.api = api
        self.id = operator_id
        self.token = token
        self.http = httpx2.Client(
            base_url=f"{api.url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=120.0,
            trust_env=False,
        )

    def project(self, folder: Path, text: str = "") -> dict[str, Any]:
        """Load a fresh folder."""
        folder.mkdir(parents=True, exist_ok=True)
        if text:
            (folder / ".holdfast").mkdir(exist_ok=True)
            (folder / ".holdfast" / "project.yaml").write_text(text)
        answer = self.http.post("/projects/load", json={"path": str(folder), "trust": True})
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def session(self, project_id: str, **fields: Any) -> dict[str, Any]:
        """A new session."""
        answer = self.http.post(f"/projects/{project_id}/sessions", json=fields)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def send(self, session_id: str, content: str = "hello", **headers: str) -> httpx2.Response:
        """Post a message."""
        return self.http.post(
            f"/sessions/{session_id}/messages", json={"content": content}, headers=headers
        )

    def socket(self, path: str, **options: Any) -> ClientConnection:
        """A WebSocket below /api/v1."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        address = f"ws://127.0.0.1:{self.api.port}/api/v1{path}"
        return connect(
            address,
            additional_headers=headers,
            compression=None,
            max_size=32 * 1024 * 1024,
            legacy=True,
            **options,
        )

    def attach(
        self, session_id: str, *, observe: bool = False, **hello: Any
    ) -> tuple[ClientConnection, dict[str, Any]]:
        """Attach to a session; the socket and its first answer."""
        query = "?observe=1" if observe else ""
        socket = self.socket(f"/sessions/{session_id}/socket{query}")
        say(socket, "control", "hello", **hello)
        return socket, hear(socket)

    def close(self) -> None:
        """Give back the connections."""
        self.http.close()


def say(socket: ClientConnection, channel: str, kind: str, **payload: Any) -> None:
    """Send one frame."""
    socket.send(json.dumps({"channel": channel, "type": kind, "payload": payload}))


def hear(socket: ClientConnection, *, timeout_s: float = 120.0) -> dict[str, Any]:
    """The next frame."""
    frame: dict[str, Any] = json.loads(socket.recv(timeout=timeout_s))
    return frame


def hear_until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """All frames up to and with the first of this type."""
    heard = [hear(socket)]
    while heard[-1]["type"] != kind:
        heard.append(hear(socket))
    return heard
