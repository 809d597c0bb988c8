"""Start one program, on a terminal or on a pipe, bare or caged, as the leader of its tree."""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptyprocess import PtyProcess

from holdfast.terminal import tree
from holdfast.terminal.cages import egress_environment
from holdfast.terminal.cages.bubblewrap import PATH_DEFAULT
from holdfast.terminal.cages.confinement import OPEN, Confinement, Wanted
from holdfast.terminal.cages.enforcement import Enforcement
from holdfast.terminal.cages.finding import probe
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import Place, judge, opened_place
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.cages.users import OsUser, check_folder, user_named
from holdfast.terminal.errors import CageSpawnFailed, SpawnFailed
from holdfast.terminal.records import SpawnRequest

MARK = "HOLDFAST_PROCESS"
# Provider keys and tokens in the host's environment are none of a program's business.
ENVIRONMENT_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
)
OUT_OF_MEMORY_SCORE = b"500"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Launched:
    """A program that runs: its leader, where its output comes from, and the cage's report.

    `cage` is the kind of its cage, or `disabled`; `private` is a folder that ends with it.
    """

    pid: int
    output: int
    child: Any
    status: int | None = None
    cage: str = "disabled"
    private: Path | None = None
    # The caged program starts when something is written here.
    gate: int | None = None
    # What was read of the status before the program started.
    heard: bytes = b""

    def open_gate(self) -> None:
        """Let the program in the cage start."""
        if self.gate is not None:
            # A cage that could not be set up is gone by now; its end is told otherwise.
            with contextlib.suppress(BrokenPipeError):
                os.write(self.gate, OPEN)
            os.close(self.gate)
            self.gate = None

    def abandon(self) -> None:
        """End a program that still waits at its gate: it never ran."""
        for pid in (*tree.children_of(self.pid), self.pid):
            tree.send(pid, signal.SIGKILL)
        self.reap()
        self.close()

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
        for end in (self.status, self.gate):
            if end is not None:
                os.close(end)
        self.status = self.gate = None
        if self.private is not None:
            shutil.rmtree(self.private, ignore_errors=True)


def launch(
    request: SpawnRequest,
    policy: CagePolicy | None,
    *,
    hidden: Sequence[Path],
    hiding: Hiding,
    mark: str,
    enforcement: Enforcement | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Launched:
    """Run the program; SpawnFailed or CageSpawnFailed if it cannot be started.

    The program begins after `ready`; a cage is set up meanwhile if it has a gate. The gate of a
    guarded network is left to who makes its door. Only from the main thread: the program dies with
    the thread that started it.
    """
    user = None if request.unix_user is None else user_named(request.unix_user)
    project = None if request.project is None else Path(request.project)
    with ExitStack() as cleaning:
        place = cleaning.enter_context(
            opened_place(Path(request.cwd), request.below, hidden=hidden, project=project)
        )
        if user is not None:
            check_folder(user, place.descriptor, place.path)
        if policy is None:
            return _start(request, _bare(request, place, mark), enforcement, user, ready)
        judge(place)
        cage = probe(user)
        wanted = Wanted(
            policy=policy,
            argv=shell_line(request),
            place=place,
            hiding=hiding,
            environment=_caged_additions(request, policy, mark),
            terminal=request.terminal,
            user=user,
        )
        confinement = cage.confine(wanted, cleaning)
        launched = _start(request, confinement, enforcement, user, ready)
        if policy.egress is None:
            launched.open_gate()
        return replace(launched, cage=cage.kind)


def _start(
    request: SpawnRequest,
    confinement: Confinement,
    enforcement: Enforcement | None,
    user: OsUser | None,
    ready: Callable[[], None],
) -> Launched:
    start = _on_terminal if request.terminal else _on_pipe
    try:
        if confinement.gate is None:
            ready()
        launched = start(request, confinement, _preparation(confinement, enforcement, user))
    except BaseException:
        for end in (confinement.status, confinement.gate):
            if end is not None:
                os.close(end)
        if confinement.private is not None:
            shutil.rmtree(confinement.private, ignore_errors=True)
        raise
    launched = replace(
        launched,
        status=confinement.status,
        private=confinement.private,
        gate=confinement.gate,
    )
    if confinement.gate is not None:
        try:
            ready()
        except BaseException:
            launched.abandon()
            raise
    return launched


def _bare(request: SpawnRequest, place: Place, mark: str) -> Confinement:
    """No cage: the program as it is, in the folder that was opened."""

    def enter() -> None:
        # Here and not by ptyprocess, which would let a failed child run on as a second host.
        os.fchdir(place.descriptor)
        os.set_inheritable(place.descriptor, False)

    ours: Mapping[str, str] = os.environ
    passed = {name: ours[name] for name in ENVIRONMENT_PASSED if name in ours}
    return Confinement(
        argv=shell_line(request),
        environment={
            **{"PATH": PATH_DEFAULT, "LANG": "C.UTF-8", "TERM": "dumb"},
            **passed,
            **_additions(request, mark),
        },
        descriptors=(place.descriptor,),
        take_on=enter,
    )


def shell_line(request: SpawnRequest) -> list[str]:
    """The program and its arguments; a command goes to bash, or to sh where there is none."""
    if request.argv is not None:
        return list(request.argv)
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    return [shell, "-c", request.command or ""]


def _on_terminal(
    request: SpawnRequest, confinement: Confinement, prepare: Callable[[], None]
) -> Launched:
    try:
        child = PtyProcess.spawn(
            confinement.argv,
            env=confinement.environment,
            dimensions=(request.rows, request.cols),
            preexec_fn=prepare,
            pass_fds=confinement.descriptors,
        )
    except Exception as error:
        # ptyprocess passes on what happened in the child as whatever class it had there.
        raise _failure(request, error) from error
    os.set_inheritable(child.fd, False)
    os.set_blocking(child.fd, False)
    return Launched(child.pid, child.fd, child)


def _on_pipe(
    request: SpawnRequest, confinement: Confinement, prepare: Callable[[], None]
) -> Launched:
    stdin = _stdin(request)
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(
            confinement.argv,
            env=confinement.environment,
            stdin=stdin,
            stdout=writing,
            stderr=writing,
            preexec_fn=prepare,
            start_new_session=True,
            pass_fds=confinement.descriptors,
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(reading)
        raise _failure(request, error) from error
    finally:
        os.close(stdin)
        os.close(writing)
    os.set_blocking(reading, False)
    return Launched(child.pid, reading, child)


def _stdin(request: SpawnRequest) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(request.stdin or os.devnull, flags)
    except OSError as error:
        raise SpawnFailed(f"its standard input cannot be read: {error.strerror}") from error


def _preparation(
    confinement: Confinement, enforcement: Enforcement | None, user: OsUser | None
) -> Callable[[], None]:
    """What the child does to itself before it becomes the program."""

    def prepare() -> None:
        # Python or the host ignores these, and programs misbehave if they inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # Orphans stay in this tree, so that it can be stopped and ended as a whole.
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _prefer_as_victim()
        if enforcement is not None:
            enforcement.enter()
        for descriptor in confinement.descriptors:
            os.set_inheritable(descriptor, True)
        if user is not None:
            _become(user)
        # Without the host nobody could read, stop or end the program; a new user forgets this.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if confinement.take_on is not None:
            confinement.take_on()

    return prepare


def _become(user: OsUser) -> None:
    if os.isatty(0):
        os.fchown(0, user.uid, -1)
    user.become()


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


def _additions(request: SpawnRequest, mark: str) -> dict[str, str]:
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor"} if request.terminal else {}
    return {**terminal, **request.env, MARK: mark}


def _caged_additions(request: SpawnRequest, policy: CagePolicy, mark: str) -> dict[str, str]:
    guarded = {} if policy.egress is None else egress_environment.VARIABLES
    return {**guarded, **_additions(request, mark)}


def _failure(request: SpawnRequest, error: Exception) -> SpawnFailed | CageSpawnFailed:
    if request.cage is not None:
        return CageSpawnFailed(f"the cage could not be started: {error}")
    program = shell_line(request)[0]
    if shutil.which(program) is None:
        return SpawnFailed(f"no such program: {program}")
    return SpawnFailed(f"{program} could not be started: {error}")
