"""Start one program, on a terminal or on a pipe, bare or caged, as the leader of its tree."""

import ctypes
import fcntl
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptyprocess import PtyProcess

from holdfast.terminal import cage
from holdfast.terminal.cage import CagePolicy
from holdfast.terminal.errors import CageSpawnFailed, SpawnFailed
from holdfast.terminal.records import SpawnRequest

MARK = "HOLDFAST_PROCESS"
# Provider keys and tokens in the host's environment are none of a program's business.
ENVIRONMENT_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
)
OUT_OF_MEMORY_SCORE = b"500"
CPU_GRACE_S = 5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Launched:
    """A program that runs: its leader, where its output comes from, and the cage's report."""

    pid: int
    output: int
    status: int | None
    child: Any

    def reap(self) -> int:
        """The wait status of a leader that is over; must be called once, and only then."""
        _, status = os.waitpid(self.pid, 0)
        if isinstance(self.child, subprocess.Popen):
            self.child.returncode = os.waitstatus_to_exitcode(status)
        return status

    def set_size(self, cols: int, rows: int) -> None:
        """Tell the terminal its size."""
        self.child.setwinsize(rows, cols)

    def close(self) -> None:
        """Give the terminal or pipe back; whoever still holds the other end gets a hangup."""
        if isinstance(self.child, PtyProcess):
            self.child.fileobj.close()
            # Its own close would sleep and send signals.
            self.child.closed = True
        else:
            os.close(self.output)
        if self.status is not None:
            os.close(self.status)


def launch(
    request: SpawnRequest, policy: CagePolicy | None, *, hidden: Sequence[Path], mark: str
) -> Launched:
    """Run the program; SpawnFailed or CageSpawnFailed if it cannot be started.

    Only from the main thread: the program dies with the thread that started it.
    """
    cwd = Path(request.cwd).resolve()
    if not cwd.is_dir():
        raise SpawnFailed(f"no such directory: {request.cwd}")
    ours, theirs = os.pipe() if policy is not None else (None, None)
    try:
        argv = shell_line(request)
        if policy is not None and theirs is not None:
            argv = cage.command_line(policy, argv, cwd=cwd, hidden=hidden, status_fd=theirs)
        prepare = _preparation(policy, None if policy else cwd)
        start = _on_terminal if request.terminal else _on_pipe
        environment = _environment(request, policy, mark)
        launched = start(request, argv, environment, prepare, theirs)
    except BaseException:
        if ours is not None:
            os.close(ours)
        raise
    finally:
        if theirs is not None:
            os.close(theirs)
    launched.status = ours
    return launched


def shell_line(request: SpawnRequest) -> list[str]:
    """The program and its arguments; a command goes to bash, or to sh where there is none."""
    if request.argv is not None:
        return list(request.argv)
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    return [shell, "-c", request.command or ""]


def _on_terminal(
    request: SpawnRequest,
    argv: list[str],
    environment: dict[str, str],
    prepare: Callable[[], None],
    status: int | None,
) -> Launched:
    try:
        child = PtyProcess.spawn(
            argv,
            env=environment,
            dimensions=(request.rows, request.cols),
            preexec_fn=prepare,
            pass_fds=() if status is None else _inheritable(status),
        )
    except Exception as error:
        # ptyprocess passes on what happened in the child as whatever class it had there.
        raise _failure(request, error) from error
    os.set_inheritable(child.fd, False)
    os.set_blocking(child.fd, False)
    return Launched(child.pid, child.fd, None, child)


def _on_pipe(
    request: SpawnRequest,
    argv: list[str],
    environment: dict[str, str],
    prepare: Callable[[], None],
    status: int | None,
) -> Launched:
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            preexec_fn=prepare,
            start_new_session=True,
            pass_fds=() if status is None else (status,),
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(reading)
        raise _failure(request, error) from error
    finally:
        os.close(writing)
    os.set_blocking(reading, False)
    return Launched(child.pid, reading, None, child)


def _preparation(policy: CagePolicy | None, cwd: Path | None) -> Callable[[], None]:
    """What the child does to itself before it becomes the program."""

    def prepare() -> None:
        # Python or the host ignores these, and programs misbehave if they inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # Orphans stay in this tree, so that it can be stopped and ended as a whole.
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Without the host nobody could read, stop or end the program.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _prefer_as_victim()
        if policy is not None and policy.cpu_s is not None:
            limit = (policy.cpu_s, policy.cpu_s + CPU_GRACE_S)
            resource.setrlimit(resource.RLIMIT_CPU, limit)
        if cwd is not None:
            # Here and not by ptyprocess, which would let a failed child run on as a second host.
            os.chdir(cwd)

    return prepare


def _prefer_as_victim() -> None:
    """If memory runs out, the kernel should take this program and not the host."""
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(score, OUT_OF_MEMORY_SCORE)
    finally:
        os.close(score)


def _environment(request: SpawnRequest, policy: CagePolicy | None, mark: str) -> dict[str, str]:
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor"} if request.terminal else {}
    extra = {**terminal, **request.env, MARK: mark}
    if policy is not None:
        return cage.environment(policy, os.environ, extra)
    ours: Mapping[str, str] = os.environ
    passed = {name: ours[name] for name in ENVIRONMENT_PASSED if name in ours}
    return {"PATH": cage.PATH_DEFAULT, "LANG": "C.UTF-8", "TERM": "dumb", **passed, **extra}


def _failure(request: SpawnRequest, error: Exception) -> SpawnFailed | CageSpawnFailed:
    if request.cage is not None:
        return CageSpawnFailed(f"the cage could not be started: {error}")
    program = shell_line(request)[0]
    if shutil.which(program) is None:
        return SpawnFailed(f"no such program: {program}")
    return SpawnFailed(f"{program} could not be started: {error}")


def _inheritable(number: int) -> tuple[int]:
    fcntl.fcntl(number, fcntl.F_SETFD, 0)
    return (number,)
