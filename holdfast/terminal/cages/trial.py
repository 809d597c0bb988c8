"""A trial of a cage: a program in it attacks this machine, and each attack must fail."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from holdfast.terminal.cages.confinement import OPEN, Cage, Confinement, Wanted
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import opened_place
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.cages.users import OsUser
from holdfast.terminal.errors import CageUnavailable, TerminalError

TIMEOUT_S = 20
LAST_WORDS = 500
# Opened for writing, never written.
KERNEL_SETTING = "/proc/sys/kernel/core_pattern"
# Below, a number may be that of a process inside.
OWN_PIDS_MAX, SHOWN_MAX = 64, 8
DONE = "the trial is over"
ATTACKS = f"""
cat "$1" 2>/dev/null && echo 'BROKEN it read a secret outside'
(: >>{KERNEL_SETTING}) 2>/dev/null && echo 'BROKEN it opened a setting of the kernel for writing'
(: >"$2") 2>/dev/null
if test "$3" -gt {OWN_PIDS_MAX}; then
  kill -0 "$3" 2>/dev/null && echo 'BROKEN it reached a process outside'
  test -n "$(head -c 9 "/proc/$3/environ" 2>/dev/null)" && echo 'BROKEN it read an environment'
fi
test "$5" = own && test "$(ls -d /proc/[0-9]* | wc -l)" -gt {SHOWN_MAX} \\
  && echo 'BROKEN it saw the processes of others'
test -x /bin/bash && /bin/bash -c "exec 3<>/dev/tcp/127.0.0.1/$4" 2>/dev/null \\
  && echo 'BROKEN it connected to this machine'
(: >here) && echo '{DONE}'
"""


def attack(cage: Cage, *, user: OsUser | None = None, own_proc: bool = True) -> None:
    """CageUnavailable with the reason when the cage cannot be built, or does not hold."""
    with _target(user) as (folder, secret), closing(_listener()) as listener:
        port = str(listener.getsockname()[1])
        escape = secret.with_name("escape")
        words = ["/bin/sh", "-c", ATTACKS, "sh", str(secret), str(escape)]
        words += [str(os.getpid()), port, "own" if own_proc else "shared"]
        done = _run(cage, words, folder, user)
        # Inside, it may be there all the same, in memory.
        escaped = escape.exists()
    said = done.stdout.decode(errors="replace")
    broken = [line[7:] for line in said.splitlines() if line.startswith("BROKEN ")]
    broken += ["it wrote a file outside"] if escaped else []
    if broken:
        raise CageUnavailable(f"{cage.kind} does not hold here: {'; '.join(broken)}")
    if DONE not in said:
        why = (done.stderr.decode(errors="replace").strip() or said)[-LAST_WORDS:]
        raise CageUnavailable(f"{cage.kind} does not work here: {why or 'it ran nothing'}")


def _run(
    cage: Cage, words: list[str], folder: Path, user: OsUser | None
) -> subprocess.CompletedProcess[bytes]:
    try:
        with ExitStack() as cleaning:
            place = cleaning.enter_context(opened_place(folder, "", hidden=()))
            hiding = cleaning.enter_context(closing(Hiding()))
            wanted = Wanted(policy=CagePolicy(), argv=words, place=place, hiding=hiding, user=user)
            confinement = cage.confine(wanted, cleaning)
            cleaning.callback(_tidy, confinement)
            if confinement.gate is not None:
                os.write(confinement.gate, OPEN)
            return subprocess.run(
                confinement.argv,
                env=confinement.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
                pass_fds=confinement.descriptors,
                preexec_fn=_becoming(confinement, user),
            )
    except (OSError, subprocess.SubprocessError, TerminalError) as error:
        raise CageUnavailable(f"{cage.kind} does not work here: {error}") from error


def _becoming(confinement: Confinement, user: OsUser | None) -> Callable[[], None]:
    def become() -> None:
        if user is not None:
            user.become()
        if confinement.take_on is not None:
            confinement.take_on()

    return become


def _tidy(confinement: Confinement) -> None:
    for end in (confinement.status, confinement.gate):
        if end is not None:
            os.close(end)
    if confinement.private is not None:
        shutil.rmtree(confinement.private, ignore_errors=True)


@contextmanager
def _target(user: OsUser | None) -> Iterator[tuple[Path, Path]]:
    """A folder to work in, and a secret beside it that no mode protects."""
    with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as name:
        around = Path(name).resolve()
        folder, secret = around / "work", around / "secret"
        folder.mkdir()
        secret.write_text("a secret\n")
        if user is not None:
            for path in (around, folder, secret):
                os.chown(path, user.uid, user.gid)
        yield folder, secret


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))
