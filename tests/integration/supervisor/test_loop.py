"""The supervisor's loop around small parts: what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.commands import product
from tests.support.waiting import wait_for

SLEEP = "import time; time.sleep(600)"
MISTAKE = "import sys; sys.stderr.write('the key is wrong\\n'); sys.exit(78)"
FAILURE = "import sys; sys.stderr.write('no luck\\n'); sys.exit(3)"
PROGRAM = """
import sys
from pathlib import Path
from holdfast.supervisor import part, ports
from holdfast.supervisor.loop import Supervisor
from holdfast.supervisor.part import Part
from holdfast.supervisor.plan import Plan
from holdfast.settings.environment import Settings

home, codes = Path(sys.argv[1]), sys.argv[2:]
part.FIRST_DELAY_S = 0.01
settings = Settings(home=home, bind="127.0.0.1:9")
settings.make_home()
def make(name, code):
    command = [sys.executable, "-c", code]
    return Part(name, command, {}, home / "logs" / f"{name}.log", home)
parts = {name: make(name, code) for name, code in zip(("api", "worker"), codes)}
forever = "import os, time; open('terminal.pid', 'w').write(str(os.getpid())); time.sleep(600)"
terminal = make("terminal", forever)
sys.exit(Supervisor(Plan(settings, parts, terminal, None, ports.Ports())).run())
"""


@contextmanager
def supervisor(home: Path, *, api: str, worker: str) -> Iterator[subprocess.Popen[str]]:
    """A supervisor of such parts in a process of its own; its terminal host is ended, too."""
    command = [sys.executable, "-c", PROGRAM, str(home), api, worker]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            wait_for(lambda: read_pids(home) or child.poll() is not None, "the parts to be started")
            yield child
        finally:
            child.kill()
            # The terminal host lives on by design; this one wrote its pid first of all.
            pid = wait_for(lambda: _terminal_pid(home), "the terminal host's pid")
            subprocess.run(["kill", pid], check=False)


def _terminal_pid(home: Path) -> str:
    path = home / "terminal.pid"
    return path.read_text() if path.exists() else ""


def read_pids(home: Path) -> dict[str, int]:
    try:
        found: dict[str, int] = json.loads((home / "run.json").read_text())["pids"]
    except FileNotFoundError:
        return {}
    return found if "terminal" in found else {}


def test_a_mistake_in_a_parts_configuration_ends_all_with_its_words(tmp_path: Path) -> None:
    with supervisor(
        tmp_path, api=SLEEP, worker=f"import time; time.sleep(0.5); {MISTAKE}"
    ) as child:
        _, words = child.communicate(timeout=120.0)
    assert child.returncode == 78
    assert "worker: the key is wrong" in words
    assert "worker cannot run with this configuration" in words


def test_a_part_that_always_fails_is_given_up_with_its_words(tmp_path: Path) -> None:
    with supervisor(
        tmp_path, api=SLEEP, worker=f"import time; time.sleep(0.3); {FAILURE}"
    ) as child:
        said, words = child.communicate(timeout=120.0)
    assert child.returncode == 1
    assert said.count("starting it again") == 5
    assert "worker: no luck" in words
    assert "gave up on worker: it ended 6 times in a row" in words


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_the_parts_and_removes_run_json(
    tmp_path: Path, number: signal.Signals
) -> None:
    with supervisor(tmp_path, api=SLEEP, worker=SLEEP) as child:
        child.send_signal(number)
        said, _ = child.communicate(timeout=120.0)
    assert child.returncode == 0
    assert "terminals live on" in said
    assert not (tmp_path / "run.json").exists()


def test_down_stops_it_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with supervisor(tmp_path, api=SLEEP, worker=SLEEP) as child:
        # Reaped by a thread of its own, as a shell would.
        reaper = threading.Thread(target=child.communicate)
        reaper.start()
        monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
        product.down()
        reaper.join(timeout=120.0)
    assert child.returncode == 0
    assert capsys.readouterr().out == "stopped: supervisor\n"
