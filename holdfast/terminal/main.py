"""`holdfast terminal-host SOCKET STATE`: the one terminal host of a machine, for life."""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain.cages.shown import described, in_words
from holdfast.terminal import identity, protocol
from holdfast.terminal.cages.finding import machine_cage
from holdfast.terminal.host import Host
from holdfast.terminal.registry import IDLE_SECONDS
from holdfast.terminal.remote_callers import Remote

LOG_BYTES_MAX = 1024 * 1024
SOCKET_PATH_BYTES_MAX = 100
PR_SET_CHILD_SUBREAPER = 36
# A host that was started on demand goes when nobody has needed it for so long.
EXIT_AFTER_S = 600.0


def main(
    socket_path: str | Path, state_dir: str | Path, *, exit_after_s: float | None = None
) -> int:
    """Run the host until it is told to stop; 0 at once if another one already serves."""
    socket_path, state_dir = Path(socket_path).absolute(), Path(state_dir).absolute()
    if len(os.fsencode(socket_path)) > SOCKET_PATH_BYTES_MAX:
        sys.stderr.write(f"the socket's path is too long for the kernel: {socket_path}\n")
        return 2
    for folder in (state_dir, socket_path.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with only_one(state_dir, socket_path) as lock:
        if lock is None:
            return 0
        with only_listener(socket_path) as listens:
            if not listens:
                words = f"another terminal host, with another state, serves {socket_path}\n"
                sys.stderr.write(words)
                return 1
            _run(socket_path, state_dir, exit_after_s, lock)
    return 0


def _run(socket_path: Path, state_dir: Path, exit_after_s: float | None, lock: int) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    look_at_cages()
    # Daemons whose parents are gone come to the host, which ends them with their tree.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asyncio.run(_serve(socket_path, state_dir, exit_after_s, lock))


def look_at_cages() -> None:
    """Try the cages of this machine before the first program needs one, and log what is missing."""
    found = machine_cage()
    if found.kind == "none" or found.reduced:
        logging.warning("%s", in_words(described({}, found)))


@contextlib.contextmanager
def only_one(state_dir: Path, socket_path: Path) -> Iterator[int | None]:
    """Hold the lock for life; None if another host has it. The kernel frees it, however we end."""
    lock = os.open(state_dir / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        yield None
        return
    about = {"pid": os.getpid(), "version": protocol.VERSION, "started_at": time.time()}
    os.ftruncate(lock, 0)
    os.write(lock, json.dumps({**about, "socket": str(socket_path)}).encode())
    try:
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def only_listener(socket_path: Path) -> Iterator[bool]:
    """Hold the lock beside the socket for life; False if a host with another state has it."""
    beside = socket_path.with_name(socket_path.name + ".lock")
    lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    try:
        yield free
    finally:
        os.close(lock)


def detach(state_dir: Path) -> None:
    """Leave the caller: a new session, no terminal, output to the log; the parent ends."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    log = state_dir / "host.log"
    fresh = os.O_TRUNC if log.exists() and log.stat().st_size > LOG_BYTES_MAX else 0
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 256)


async def _serve(socket_path: Path, state_dir: Path, exit_after_s: float | None, lock: int) -> None:
    def is_wanted() -> bool:
        try:
            return os.path.samestat(os.fstat(lock), (state_dir / "host.lock").stat())
        except OSError:
            # The folder was deleted, so the next host will not know of this one.
            return False

    idle_s = float(os.environ.get("HOLDFAST_TERMINAL_IDLE_S", IDLE_SECONDS))
    remote = Remote.from_environment()
    host = Host(
        socket_path,
        state_dir,
        identity=identity.begin(state_dir, first_id=remote.machine_id if remote else None),
        idle_s=idle_s,
        exit_after_s=exit_after_s,
        is_wanted=is_wanted,
        remote=remote,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, host.stopping.set)
    # The supervisor's terminal may close; the host must not go with it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await host.serve()


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    if len(arguments) != 2:
        sys.exit("usage: terminal-host SOCKET STATE [--detach]")
    on_demand = "--detach" in sys.argv
    if on_demand:
        detach(Path(arguments[1]).absolute())
    sys.exit(main(*arguments, exit_after_s=EXIT_AFTER_S if on_demand else None))
