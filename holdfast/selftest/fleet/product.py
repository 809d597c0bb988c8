"""A fleet of the self-test's own: three hosts, two APIs, Postgres, Temporal and an object store.

Each program is started again when it ends, as an operator's service manager would do it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.fleet import authority
from holdfast.selftest.fleet.network import TEMPORAL, make_network
from holdfast.selftest.fleet.part import Part, without_ours
from holdfast.selftest.fleet.services import (
    FleetUnavailable,
    Objects,
    Postgres,
    Temporal,
    binaries,
)
from holdfast.selftest.product import NotReady
from holdfast.selftest.record import Record
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.projects import operators
from holdfast.supervisor import ports, readiness, terminal_host

HOSTS = ("host-1", "host-2", "host-3")
APIS = ("api-1", "api-2")
API_PORT, LINK_PORT = 28420, 28430
OURS = ("worker", "terminal", "api")
READY_TIMEOUT_S = 240.0
WATCH_S = 0.2
STARTS_MAX = 2000
OPERATOR = "selftest"
# Short, so that a cut of some seconds makes calls that are lost.
CONFIG = "[fleet]\nhost_lost_after_s = 20\n"
COMMAND_TIMEOUT_S = 120.0


class FleetProduct:
    """Machines with a home each, which share a network, a database, Temporal and blobs."""

    def __init__(self, record: Record) -> None:
        binaries()  # before anything is made
        # Short on purpose: Unix socket paths have a limit of 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="hf-fleet-"))
        # Each machine's home; what tells the homes apart from the projects.
        self.home = self.folder / "machines"
        self.home.mkdir(mode=0o700)
        self.record = record
        self.network = make_network()
        self.parts: dict[str, Part] = {}
        self.machine_ids: dict[str, str] = {}
        self._postgres: Postgres | None = None
        self._temporal: Temporal | None = None
        self._objects: Objects | None = None
        self._settings: dict[str, Settings] = {}
        self._token = ""
        self._stopped: int | None = None
        self._stopping = threading.Event()
        self._nurse = threading.Thread(target=self._look_after, daemon=True, name="nurse")

    @property
    def words(self) -> str:
        """What this fleet is made of, for the report."""
        blobs = "" if self._objects is None else self._objects.words
        return f"{len(HOSTS)} hosts, {len(APIS)} APIs; {self.network.words}; blobs in {blobs}"

    @property
    def urls(self) -> list[str]:
        """Where the APIs are."""
        return [f"http://{self.network.places[name].address}:{API_PORT}" for name in APIS]

    @property
    def states(self) -> dict[str, Path]:
        """The state folder of each terminal host, by the host's id."""
        return {self.machine_ids[name]: self._settings[name].terminal_state_dir for name in HOSTS}

    def start(self) -> None:
        """Start everything, and keep it started."""
        self._start_services()
        self._certify()
        store = self.open_store()
        self._token = store.write(_operators)
        store.close()
        for name in HOSTS:
            self._add(name, "terminal")
            self._add(name, "worker")
        for name in APIS:
            self._add(name, "api")
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Until both APIs say so and every host is up."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self.is_ready():
            if time.monotonic() > deadline:
                words = "; ".join(readiness.why_not(url) for url in self.urls)
                raise NotReady(f"the fleet did not get ready ({words}); see {self.home}/*/logs")
            time.sleep(0.2)

    def is_ready(self) -> bool:
        """Whether both APIs are ready and every host is heard of."""
        if not all(readiness.is_ready(url) for url in self.urls):
            return False
        _, body = readiness.ask(self.urls[0], "GET", "/api/v1/hosts", self._token)
        shown = body.get("items", []) if isinstance(body, dict) else []
        return len(shown) == len(HOSTS) and all(one["state"] == "up" for one in shown)

    def token(self) -> str:
        """The bearer token of the clients."""
        return self._token

    def open_store(self) -> OpenStore:
        """The store as a machine without any role in the fleet sees it."""
        assert self._postgres is not None, "started"
        assert self._objects is not None, "started"
        os.environ.update(self._objects.environment)
        home = self.folder / "looking"
        return open_store(self._postgres.url, home, blobs_url=self._objects.url)

    def send(self, name: str, number: signal.Signals) -> bool:
        """Signal a program; false when it is not running just now."""
        return self.parts[name].send(number)

    def stop(self) -> int:
        """A clean stop of all but Postgres and the blobs; 1 when a part had to be killed."""
        self._stopping.set()
        if self._nurse.is_alive():
            self._nurse.join(timeout=READY_TIMEOUT_S)
        self.network.heal()
        if self._stopped is None:
            # Workers first: they start a terminal host where there is none.
            ours = sorted(self.parts, key=lambda name: not name.endswith("/worker"))
            clean = [self.parts[name].stop() for name in ours if name not in self._kept()]
            self._stopped = 0 if all(clean) else 1
        return self._stopped

    def clear(self, *, keep_home: bool) -> None:
        """End what is left, and remove it unless somebody wants to look."""
        for part in self.parts.values():
            part.stop()
        self.network.close()
        if self._postgres is not None:
            self._postgres.remove()
        if not keep_home:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _kept(self) -> set[str]:
        """Parts that the checker needs."""
        return {name for name in self.parts if self.parts[name].kind in ("postgres", "objects")}

    def _start_services(self) -> None:
        self._postgres = Postgres(self.network.join("postgres"))
        self._temporal = Temporal(self.network.join(TEMPORAL), self.home / TEMPORAL)
        self._objects = Objects(self.network, self.home)
        found = (self._postgres.part, self._temporal.part, self._objects.part)
        self.parts.update({part.name: part for part in found if part is not None})
        self._postgres.start()
        self._temporal.part.start()
        self._objects.start()
        self._nurse.start()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (
            ports.accepts(self._postgres.address)
            and ports.accepts(self._temporal.address)
            and self._objects.is_ready()
        ):
            if time.monotonic() > deadline:
                raise NotReady(f"Postgres or Temporal did not start; see {self.home}")
            time.sleep(0.1)

    def _certify(self) -> None:
        """An authority on the first API's machine, and a certificate for each machine."""
        first = self._settings_of(APIS[0])
        self._command(first, "fleet", "init")
        for name in (*HOSTS, *APIS[1:]):
            settings = self._settings_of(name)
            role = ["--api"] if name in APIS else []
            self._command(first, "fleet", "issue", str(settings.fleet_dir), *role)
            said = (settings.fleet_dir / authority.MACHINE).read_text(encoding="utf-8")
            self.machine_ids[name] = said.strip()

    def _command(self, settings: Settings, *words: str) -> None:
        answer = subprocess.run(
            [sys.executable, "-P", "-m", "holdfast.cli.main", *words],
            env=without_ours(settings.child_environment()),
            cwd="/",
            capture_output=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        if answer.returncode != 0:
            said = (answer.stderr or answer.stdout).decode("utf-8", "replace").strip()
            raise FleetUnavailable(f"holdfast {' '.join(words[:2])} failed: {said[-300:]}")

    def _settings_of(self, name: str) -> Settings:
        """What a machine's programs see."""
        if name not in self._settings:
            assert self._postgres is not None, "services come first"
            assert self._objects is not None, "services come first"
            assert self._temporal is not None, "services come first"
            place = self.network.join(name)
            link = f"{place.address}:{LINK_PORT}" if name in HOSTS else ""
            self._settings[name] = Settings(
                home=self.home / name,
                bind=f"{place.address}:{API_PORT}",
                database_url=self._postgres.url,
                blobs_url=self._objects.url,
                temporal_address=self._temporal.address,
                temporal_embedded=False,
                host_name=name,
                host_listen=link,
                host_address=link,
                drain_s=2.0,
            )
            self._settings[name].make_home()
            (self.home / name / "config.toml").write_text(CONFIG, encoding="utf-8")
        return self._settings[name]

    def _add(self, machine: str, kind: str) -> None:
        """Start one of our programs on a machine."""
        settings, place = self._settings[machine], self.network.places[machine]
        command = {"terminal": "terminal-host"}.get(kind, kind)
        assert self._objects is not None, "services come first"
        part = Part(
            f"{machine}/{kind}",
            [*place.prefix, sys.executable, "-P", "-m", "holdfast.cli.main", command],
            without_ours({**settings.child_environment(), **self._objects.environment}),
            settings.logs_dir / f"{kind}.log",
            pid=_finder(settings) if kind == "terminal" else None,
        )
        self.parts[part.name] = part
        part.start()

    def _look_after(self) -> None:
        while not self._stopping.wait(WATCH_S):
            for part in tuple(self.parts.values()):
                if part.living() is not None or part.starts >= STARTS_MAX:
                    continue
                words = part.ended_badly() if part.kind in OURS else None
                if words is not None:
                    self.record.find("part_gave_up", words)
                if not self._stopping.is_set():
                    part.start()


def _finder(settings: Settings) -> Callable[[], int | None]:
    return lambda: terminal_host.living_pid(settings.terminal_socket)


def _operators(db: Db) -> str:
    """An operator for the clients; an API that others reach is refused without one."""
    made = operators.add(db, OPERATOR)
    return operators.issue_token(db, made.id)
