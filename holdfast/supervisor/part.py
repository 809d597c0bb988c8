"""One part of the product as a child process: how it is started, and when it may start again."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.supervisor import logs, process

EXIT_MISCONFIGURED = 78  # EX_CONFIG: restarting cannot help
QUICK_FAILURE_S = 10.0
QUICK_FAILURES_MAX = 5
FIRST_DELAY_S = 0.25
KILLED_DELAY_MAX_S = 1.0


class Verdict(enum.Enum):
    """What to do about a part that has ended."""

    RESTART = "restart"
    MISCONFIGURED = "misconfigured"
    GIVE_UP = "give up"


@dataclass
class Part:
    """A command that should always run; restarted at once, then ever more slowly."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    folder: Path
    # What the process may not give away by the files it makes; -1 leaves it as it is here.
    umask: int = -1
    child: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    log_mark: int = 0
    quick_failures: int = 0
    kills: int = 0
    start_at: float | None = field(default=None)

    def start(self) -> int:
        """Start the process in a session of its own, so that Ctrl-C reaches the supervisor only."""
        self.log_mark = logs.size(self.log)
        output = logs.open_for_append(self.log)
        try:
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
                umask=self.umask,
            )
        finally:
            os.close(output)
        self.started_at = time.monotonic()
        self.start_at = None
        return self.child.pid

    def ended(self) -> int | None:
        """The exit code when the process has ended since the last look, else None."""
        code = self.child.poll() if self.child else None
        if code is not None:
            self.child = None
        return code

    def judge(self, code: int) -> Verdict:
        """Decide after an end; a SIGKILL from outside says nothing about the part itself."""
        if code == EXIT_MISCONFIGURED:
            return Verdict.MISCONFIGURED
        lived_s = time.monotonic() - self.started_at
        if lived_s > QUICK_FAILURE_S:
            self.quick_failures = self.kills = 0
        if code == -signal.SIGKILL:
            self.kills += 1
            delay_s = min(FIRST_DELAY_S * (self.kills - 1), KILLED_DELAY_MAX_S)
        else:
            self.quick_failures += 1
            delay_s = FIRST_DELAY_S * 2 ** (self.quick_failures - 1)
        if self.quick_failures > QUICK_FAILURES_MAX:
            return Verdict.GIVE_UP
        self.start_at = time.monotonic() + delay_s
        return Verdict.RESTART

    def last_words(self, *, lines_max: int = 12) -> list[str]:
        """What the part wrote to its log since it was started."""
        return logs.since(self.log, self.log_mark, lines_max=lines_max)

    def ask_to_stop(self) -> None:
        """SIGTERM, when it runs."""
        if self.child is not None and self.child.poll() is None:
            process.send(self.child.pid, signal.SIGTERM)

    def wait_or_kill(self, deadline: float) -> None:
        """Wait until the monotonic `deadline`, then SIGKILL."""
        if self.child is None:
            return
        try:
            self.child.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(timeout=10)
        self.child = None
