"""One part of the benchmark: a module with a `measure()`, run in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.row import Row

ROOT = Path(__file__).resolve().parents[2]
WORDS_MAX = 300
STOP_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Part:
    """How a module is measured; `rounds` is for run-to-run noise."""

    module: str
    size: str = ""
    rounds: int = 3
    timeout_s: float = 900.0

    @property
    def name(self) -> str:
        """What chooses it on the command line."""
        return f"{self.module}-{self.size}" if self.size else self.module

    def run(self) -> tuple[list[Row], str | None]:
        """Its rows, or no rows and why."""
        with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder:
            kept = Path(folder) / "rows.json"
            environment = {**os.environ, **({"SIZE": self.size} if self.size else {})}
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.part", self.module, str(kept)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            try:
                _, said = child.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                _end(child)
                return [], f"not done after {self.timeout_s:.0f} s"
            if child.returncode != 0:
                return [], _last_line(said)
            return [Row(**row) for row in json.loads(kept.read_text(encoding="utf-8"))], None


PARTS = (
    Part("starting"),
    Part("spine"),
    Part("sockets"),
    Part("terminals"),
    Part("keystrokes"),
    Part("forking"),
    Part("long_sessions"),
    Part("consistency", rounds=1),
    Part("memory"),
    Part("caged_runs"),
    Part("fleet"),
    Part("fleet_runs", rounds=1, timeout_s=1800.0),
    Part("library", "100k"),
    # Its queries are repeated inside; filling it thrice would take a quarter of an hour.
    Part("library", "500k", rounds=1, timeout_s=3600.0),
)


def _end(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: it takes the product that it measures with it."""
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["no words"]
    return lines[-1][:WORDS_MAX]


def main(module: str, kept: str) -> None:
    """In the child: measure, and leave the rows in a file, for anybody may print."""
    rows = importlib.import_module(f"tests.bench.{module}").measure()
    Path(kept).write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
