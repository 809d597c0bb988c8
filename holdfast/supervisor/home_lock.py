"""One supervisor per home: a lock for its lifetime, and the clearing of what a dead one left."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from holdfast.supervisor import process, run_file

LEFTOVER_GRACE_S = 5.0


class HomeInUse(Exception):
    """Another supervisor lives in this home."""


class HomeLock:
    """Held by the kernel for this process, so that even SIGKILL lets go of it."""

    def __init__(self, home: Path) -> None:
        self.path = home / "supervisor.lock"
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.descriptor)
            raise HomeInUse(_who(home)) from error

    def release(self) -> None:
        """Let the next supervisor in."""
        os.close(self.descriptor)


def clear_leftovers(path: Path) -> list[str]:
    """Stop the parts a killed supervisor left behind, the terminal host excepted; name them."""
    left = run_file.read(path)
    if left is None:
        return []
    names = [
        part
        for part in ("api", "worker", "temporal")
        if left.is_running(part) and left.pids[part] != os.getpid()
    ]
    for part in names:
        process.stop(left.pids[part], left.births.get(part), grace_s=LEFTOVER_GRACE_S)
    path.unlink(missing_ok=True)
    return names


def _who(home: Path) -> str:
    run = run_file.read(home / "run.json")
    if run is None or "supervisor" not in run.pids:
        return f"another `holdfast up` is starting in {home}"
    return (
        f"Holdfast is up in {home} (supervisor pid {run.pids['supervisor']}, {run.api_url}); "
        "stop it with `holdfast down`, or choose another HOLDFAST_HOME"
    )
