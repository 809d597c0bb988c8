"""A product of the self-test's own, in a temporary home, that is always started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from holdfast.selftest.record import Record
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports, process, readiness, run_file, terminal_host

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
WATCH_S = 0.2
STARTS_MAX = 1000


class NotReady(Exception):
    """The product did not come up; the message says where its logs are."""


class Product:
    """`holdfast up` and whoever starts it again when it was killed, as an operator would."""

    def __init__(self, record: Record) -> None:
        # Short on purpose: Unix socket paths have a limit of 107 bytes.
        # Projects lie beside the home: none can be in it.
        self.folder = Path(tempfile.mkdtemp(prefix="hf-selftest-"))
        self.home = self.folder / "home"
        self.home.mkdir(mode=0o700)
        self.url = f"http://127.0.0.1:{ports.free_port()}"
        self.record = record
        self.starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._nurse = threading.Thread(target=self._look_after, daemon=True, name="nurse")

    @property
    def settings(self) -> Settings:
        """What its processes see."""
        return Settings.model_validate(
            {"home": self.home, "bind": self.url.removeprefix("http://")}
        )

    def start(self) -> None:
        """Start it, and keep it started."""
        self._up()
        self._nurse.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Until `/readyz` says so."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not readiness.is_ready(self.url):
            if time.monotonic() > deadline:
                raise NotReady(f"the product did not get ready; see {self.home}/logs and up.log")
            time.sleep(0.1)

    def token(self) -> str:
        """The bearer token of its default operator."""
        return self.settings.token_file.read_text(encoding="utf-8").strip()

    def kill(self, part: str) -> bool:
        """SIGKILL a part; false when it is not running just now."""
        run = run_file.read(self.settings.run_file)
        if run is None or not run.is_running(part):
            return False
        process.send(run.pids[part], signal.SIGKILL)
        return True

    def stop(self) -> int:
        """A clean stop; the supervisor's exit code."""
        self._stopping.set()
        if self._nurse.is_alive():
            self._nurse.join(timeout=READY_TIMEOUT_S)
        if self._child is None:
            return 0
        self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            return -signal.SIGKILL

    def clear(self, *, keep_home: bool) -> None:
        """End what is left in the home, and remove it unless somebody wants to look."""
        run = run_file.read(self.settings.run_file)
        for part in run.pids if run is not None else {}:
            if run is not None and run.is_running(part):
                process.send(run.pids[part], signal.SIGKILL)
        if (pid := terminal_host.living_pid(self.settings.terminal_socket)) is not None:
            process.stop(pid, process.birth(pid), grace_s=5.0)
        if not keep_home:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _up(self) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        bind = self.url.removeprefix("http://")
        with (self.home / "up.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "holdfast.cli.main", "up"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**kept, "HOLDFAST_HOME": str(self.home), "HOLDFAST_BIND": bind},
                cwd=self.home,
                start_new_session=True,
            )
        self.starts += 1

    def _look_after(self) -> None:
        while not self._stopping.wait(WATCH_S) and self.starts < STARTS_MAX:
            code = self._child.poll() if self._child is not None else None
            if code is None:
                continue
            if code != -signal.SIGKILL:
                words = (self.home / "up.log").read_text("utf-8", "replace")[-600:]
                self.record.find("supervisor_gave_up", f"exit code {code}: {words}")
            self._up()
