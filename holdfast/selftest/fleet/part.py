"""One program of a machine: started, killed, and started again, as a service manager would."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.supervisor import process

EXPECTED = frozenset({0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGQUIT})
WORDS_MAX = 600
STOP_GRACE_S = 20.0


class Part:
    """`pid` finds the program where it may have been started by somebody else."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        pid: Callable[[], int | None] | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = command
        self.environment = dict(environment)
        self.log = log
        self.ends_by = ends_by
        self.starts = 0
        self._pid = pid
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def kind(self) -> str:
        """What it is, whichever machine it is on: `worker` of `host-2/worker`."""
        return self.name.rpartition("/")[2]

    def start(self) -> None:
        """Start the program."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd="/",
                start_new_session=True,
            )
        self.starts += 1

    def living(self) -> int | None:
        """Its pid, or None when it does not run."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        return None if self._pid is None else self._pid()

    def ended_badly(self) -> str | None:
        """How it ended, in words, when no signal of ours explains it."""
        code = None if self._child is None else self._child.poll()
        if code is None or code in EXPECTED:
            return None
        words = self.log.read_text("utf-8", "replace")[-WORDS_MAX:]
        return f"{self.name} ended with exit code {code}: {words}"

    def send(self, number: signal.Signals) -> bool:
        """Signal it; False when it does not run just now."""
        pid = self.living()
        if pid is not None:
            process.send(pid, number)
        return pid is not None

    def stop(self) -> bool:
        """End it, and whoever stands in for it; False when it had to be killed."""
        polite = True
        while (pid := self.living()) is not None:
            born = process.birth(pid)
            process.send(pid, self.ends_by if polite else signal.SIGKILL)
            if self._child is not None and self._child.pid == pid:
                polite = self._gone() and polite
            else:
                polite = process.gone_within(pid, born, STOP_GRACE_S) and polite
        return polite

    def _gone(self) -> bool:
        assert self._child is not None, "asked for its end"
        try:
            self._child.wait(timeout=STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            return False
        return True


def without_ours(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what is said about Holdfast and Temporal, and this instead."""
    foreign = ("HOLDFAST_", "TEMPORAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, **more}
