"""Two machines as two network and mount namespaces: the same paths, and other files behind them.

They share Postgres, Temporal and an S3 server, each in a namespace of its own, and nothing else.
Every machine has a terminal host, a worker and an API. Files are put on a machine by `put`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from holdfast.domain.ids import new_id
from holdfast.fleet import authority
from holdfast.selftest.fleet.network import TEMPORAL, make_network
from holdfast.selftest.fleet.part import Part, without_ours
from holdfast.selftest.fleet.services import Objects, Postgres, Temporal
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.projects import operators
from holdfast.supervisor import ports, readiness
from tests.support.waiting import wait_for

NAMES = ("one", "two")
API_PORT, LINK_PORT = 28420, 28430
PARTS = ("terminal-host", "worker", "api")
# The machine's own files come to the place that both know; the other's files are gone.
HIDE = """
mount --bind "$1/$2" "$1/here"
for other in one two; do mount -t tmpfs none "$1/$other"; done
shift 2
exec "$@"
"""


class TwoMachines:
    """Starts with the context, and leaves nothing behind."""

    def __init__(self) -> None:
        self.network = make_network()
        if not self.network.can_cut:
            pytest.skip(self.network.words)
        # The kernel allows only some 100 bytes for a socket's path, hence no tmp_path.
        self.base = Path(tempfile.mkdtemp(prefix="hf-two-"))
        (self.base / "here").mkdir()
        self.postgres = Postgres(self.network.join("postgres"))
        self.temporal = Temporal(self.network.join(TEMPORAL), self.base / "temporal")
        self.objects = Objects(self.network, self.base)
        self.settings = {name: self._settings(name) for name in NAMES}
        self.ids: dict[str, str] = {}
        self.parts: dict[str, Part] = {}
        self.token = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            print(self.story())  # noqa: T201
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        workers_first = sorted(self.parts, key=lambda name: "worker" not in name)
        services = (self.temporal.part, self.objects.part, self.postgres.part)
        for part in (*(self.parts[name] for name in workers_first), *services):
            if part is not None:
                part.stop()
        self.network.close()
        self.postgres.remove()
        shutil.rmtree(self.base, ignore_errors=True)

    def put(self, machine: str, path: str, text: str) -> None:
        """A file below `files/` of one machine."""
        target = self.base / machine / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def seen(self, path: str) -> str:
        """The name that both machines have for what was `put`."""
        return str(self.base / "here" / "files" / path)

    def url(self, machine: str) -> str:
        """The API of that machine."""
        return f"http://{self.network.places[machine].address}:{API_PORT}"

    def api(self, machine: str) -> httpx2.Client:
        """A client of that machine's API."""
        headers = {"Authorization": f"Bearer {self.token}"}
        base_url = f"{self.url(machine)}/api/v1"
        return httpx2.Client(base_url=base_url, headers=headers, timeout=60.0, trust_env=False)

    def store(self) -> OpenStore:
        """Database and blobs, for one who is on neither machine and has the AWS_* variables."""
        home = self.base / "looking"
        return open_store(self.postgres.url, home, blobs_url=self.objects.url)

    def pid(self, machine: str, part: str) -> int:
        """The process of a part."""
        return self.parts[f"{machine}/{part}"].living() or 0

    def _start(self) -> None:
        self.postgres.start()
        self.temporal.part.start()
        self.objects.start()
        wait_for(lambda: ports.accepts(self.postgres.address), "Postgres to listen")
        wait_for(self._temporal_listens, "Temporal to listen")
        wait_for(self.objects.is_ready, "the object store")
        self._certify()
        store = open_store(self.postgres.url, self.base / "looking")
        self.token = store.write(_operator)
        store.close()
        for name in NAMES:
            for kind in PARTS:
                self._run(name, kind)
        for name in NAMES:
            wait_for(lambda name=name: readiness.is_ready(self.url(name)), f"the API of {name}")  # type: ignore[misc]
        with self.api("one") as client:
            wait_for(lambda: len(_up(client)) == len(NAMES), "both hosts to be up")

    def _temporal_listens(self) -> bool:
        if self.temporal.part.living() is None:
            # On a machine that is too busy it gives up waiting for its own services.
            self.temporal.part.start()
        return ports.accepts(self.temporal.address)

    def _settings(self, name: str) -> Settings:
        place, home = self.network.join(name), self.base / "here" / "home"
        link = f"{place.address}:{LINK_PORT}"
        for folder in ("home", "files"):
            (self.base / name / folder).mkdir(parents=True)
        return Settings(
            home=home,
            bind=f"{place.address}:{API_PORT}",
            database_url=self.postgres.url,
            blobs_url=self.objects.url,
            temporal_address=self.temporal.address,
            temporal_embedded=False,
            host_name=name,
            host_listen=link,
            host_address=link,
            drain_s=1.0,
        )

    def _certify(self) -> None:
        authority.make(self.base / "ca")
        for name in NAMES:
            self.ids[name] = new_id()
            folder = self.base / name / "home" / "fleet"
            authority.issue(self.base / "ca", folder, self.ids[name], ("host", "caller"))

    def _run(self, name: str, kind: str) -> None:
        settings = self.settings[name]
        enter = ("unshare", "--mount", "sh", "-ec", HIDE, "sh", str(self.base), name)
        program = [sys.executable, "-P", "-m", "holdfast.cli.main", kind]
        part = Part(
            f"{name}/{kind}",
            [*self.network.places[name].prefix, *enter, *program],
            without_ours({**settings.child_environment(), **self.objects.environment}),
            self.base / f"{name}-{kind}.log",
        )
        self.parts[part.name] = part
        part.start()

    def story(self) -> str:
        """The ends of all logs: for a failing test."""
        logs = [*self.base.glob("*.log"), *self.base.glob("temporal/*.log")]
        return "\n".join(
            f"--- {one.name}\n{one.read_text('utf-8', 'replace')[-2000:]}" for one in logs
        )


class Story:
    """What a person does on two machines: each call says whose API it goes to."""

    def __init__(self, machines: TwoMachines) -> None:
        self.clients = {name: machines.api(name) for name in NAMES}
        self.machines = machines

    def close(self) -> None:
        """Give back the connections."""
        for client in self.clients.values():
            client.close()

    def post(self, machine: str, path: str, body: Any = None) -> Any:
        """An answer that must be a yes."""
        answer = self.clients[machine].post(path, json=body)
        assert answer.status_code < 300, (answer.text, self.machines.story())
        return answer.json()

    def get(self, machine: str, path: str, **params: Any) -> Any:
        """An answer that must be a yes."""
        answer = self.clients[machine].get(path, params=params)
        assert answer.status_code == 200, (answer.text, self.machines.story())
        return answer.json()

    def run(self, machine: str, session_id: str, word: str, *steps: dict[str, Any]) -> str:
        """A message that the scripted model plays, seen through to its end at the same API."""
        content = f"{word}\n```script\n{json.dumps(list(steps))}\n```"
        sent = self.post(machine, f"/sessions/{session_id}/messages", {"content": content})
        path = f"/sessions/{session_id}/runs/{sent['run']['id']}"
        over = wait_for(lambda: _over(self.get(machine, path)), "the run to be over")
        assert over is not None
        assert over["state"] == "done", (over, self.machines.story())
        return str(over["id"])


def _over(run: dict[str, Any]) -> dict[str, Any] | None:
    return run if run["state"] in {"done", "failed", "cancelled"} else None


def _up(client: httpx2.Client) -> list[Any]:
    return [one for one in client.get("/hosts").json()["items"] if one["state"] == "up"]


def _operator(db: Db) -> str:
    return operators.issue_token(db, operators.add(db, "both").id)
