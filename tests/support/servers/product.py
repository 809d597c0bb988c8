"""The real product in a home of its own: started by `holdfast up`, killed by SIGKILL at will."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx2

from holdfast.cli import credentials
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports, process, terminal_host
from tests.support.waiting import wait_for

START_TIMEOUT_S = 60.0
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PARTS = ("supervisor", "api", "worker", "temporal", "terminal")


class Product:
    """A Holdfast of one's own. `pids` are those of run.json, so they are current after restarts."""

    def __init__(
        self,
        *,
        config: str = "",
        environment: dict[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        # Short on purpose: Unix socket paths have a limit of 107 bytes.
        self.home = home or Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
        self.url = f"http://127.0.0.1:{ports.free_port()}"
        self.extra_environment = environment or {}
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self._reader: threading.Thread | None = None
        if config:
            (self.home / "config.toml").write_text(config, encoding="utf-8")

    # Life ---------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> Product:
        """Run `holdfast up`; return once its `ready` line has come."""
        self._let_go()
        self.lines = []
        self.process = subprocess.Popen(
            [HOLDFAST, "up"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            cwd=self.home,
            start_new_session=True,
            # The usual one: with a stricter one nobody would notice a file that is open to others.
            umask=0o022,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        if wait:
            self.wait_until_announced()
        return self

    def wait_until_announced(self) -> None:
        """Until the supervisor printed `ready`; an early end fails with its words."""
        process = self._running()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not any("ready" in line for line in self.lines):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"holdfast up did not get ready:\n{self.story()}")
            time.sleep(0.02)

    def wait_until_ready(self) -> None:
        """Until `/readyz` is 200, as after a part was killed."""
        wait_for(self.is_ready, "the product to be ready", timeout_s=120.0)

    def is_ready(self) -> bool:
        """Whether `/readyz` is 200 now."""
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=5.0, trust_env=False).status_code == 200
        except httpx2.TransportError:
            return False

    def stop(self) -> int:
        """Stop cleanly, the terminal host stays; the supervisor's exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=120.0)
        self._let_go()
        return code

    def restart(self) -> None:
        """A clean stop and a new start in the same home, on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop everything that runs in this home and remove it."""
        pids = self.pids()
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self._let_go()
        # A killed supervisor leaves its parts to the next one; there is none.
        leftover = terminal_host.living_pid(self.settings().terminal_socket)
        for pid in {*pids.values(), leftover or 0} - {0}:
            if str(self.home) in _environment_of(pid):
                process.send(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    # Violence -----------------------------------------------------------------------------------

    def kill(self, part: str) -> int:
        """SIGKILL one part; the pid that died."""
        pid = self.pids()[part]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_all(self) -> None:
        """SIGKILL every part at once, the supervisor first so that it restarts nothing."""
        pids = self.pids()
        for part in PARTS:
            if part in pids:
                process.send(pids[part], signal.SIGKILL)
        self._running().wait(timeout=120.0)
        self._let_go()

    def wait_restarted(self, part: str, old_pid: int) -> int:
        """Until the supervisor has started that part again and all is ready; the new pid."""
        wait_for(lambda: self.pids().get(part, old_pid) != old_pid, f"{part} to be started again")
        self.wait_until_ready()
        return self.pids()[part]

    # Knowledge ----------------------------------------------------------------------------------

    def run_json(self) -> dict[str, Any]:
        """What run.json says; empty when there is none."""
        try:
            found: dict[str, Any] = json.loads((self.home / "run.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def pids(self) -> dict[str, int]:
        """The pids of run.json."""
        return dict(self.run_json().get("pids", {}))

    def environment(self) -> dict[str, str]:
        """What `holdfast …` needs to work in this home."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        bind = self.url.removeprefix("http://")
        own = {"HOLDFAST_HOME": str(self.home), "HOLDFAST_BIND": bind}
        return {**kept, **own, **self.extra_environment}

    def settings(self) -> Settings:
        """The settings its processes see."""
        own = {
            key.removeprefix("HOLDFAST_").lower(): value
            for key, value in self.environment().items()
            if key.startswith("HOLDFAST_")
        }
        return Settings.model_validate(own)

    def story(self) -> str:
        """Everything it said, and the ends of its logs: for a failing test."""
        parts = ["".join(self.lines)]
        for log in sorted((self.home / "logs").glob("*.log")):
            parts.append(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-4000:]}")
        return "\n".join(parts)

    # Use ----------------------------------------------------------------------------------------

    def token(self) -> str:
        """The bearer token of the operator `local`."""
        return (self.home / "token").read_text(encoding="utf-8").strip()

    def add_operator(self, name: str) -> str:
        """A new operator's bearer token."""
        return credentials.add_operator(self.settings(), name)[1]

    def api(self, token: str) -> httpx2.Client:
        """A client whose paths begin below /api/v1; the caller closes it."""
        return httpx2.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=120.0,
            trust_env=False,
        )

    def command(
        self, *arguments: str, token: str = "", cwd: Path | None = None, input_text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `holdfast …` against this home."""
        environment = self.environment()
        if token:
            environment["HOLDFAST_TOKEN"] = token
        return subprocess.run(
            [HOLDFAST, *arguments],
            input=input_text,
            capture_output=True,
            text=True,
            env=environment,
            cwd=cwd or self.home,
            timeout=120.0,
            check=False,
        )

    def _let_go(self) -> None:
        """Forget a supervisor that has ended; its parts hold no end of the pipe."""
        if self.process is None:
            return
        self.process.wait(timeout=120.0)
        if self._reader is not None:
            self._reader.join(timeout=120.0)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def _running(self) -> subprocess.Popen[str]:
        assert self.process is not None, "the product is not started"
        return self.process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line)


def _environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
