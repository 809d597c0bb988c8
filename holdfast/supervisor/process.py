"""Processes by pid and birth, so that a recycled pid is never mistaken for one of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path


def birth(pid: int) -> str | None:
    """What tells this process from a later one with the same pid; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return _birth_by_ps(pid) if not Path("/proc/self").exists() else None
    return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"


def is_running(pid: int, born: str | None) -> bool:
    """Whether the very process that was born then is still there."""
    return born is not None and birth(pid) == born


def stop(pid: int, born: str | None, *, grace_s: float) -> None:
    """End that process: SIGTERM, and SIGKILL when it has not gone within `grace_s`."""
    if not is_running(pid, born):
        return
    send(pid, signal.SIGTERM)
    if not gone_within(pid, born, grace_s):
        send(pid, signal.SIGKILL)
        gone_within(pid, born, 5.0)


def send(pid: int, number: signal.Signals) -> None:
    """Signal the process; it may have gone in the meantime."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def gone_within(pid: int, born: str | None, seconds: float) -> bool:
    """Wait until the process is gone, at most that long."""
    deadline = time.monotonic() + seconds
    while is_running(pid, born):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _birth_by_ps(pid: int) -> str | None:
    # Systems without /proc: the start time to the second is the best there is.
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None
