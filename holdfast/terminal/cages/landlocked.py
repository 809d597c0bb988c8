"""The cage as Landlock and a filter hold it, for machines that allow no namespaces."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.domain.cages.shown import CageKind
from holdfast.terminal.cages import capabilities, landlock, seccomp
from holdfast.terminal.cages.bubblewrap import PATH_DEFAULT, environment
from holdfast.terminal.cages.confinement import Confinement, Wanted
from holdfast.terminal.cages.mounts import SETTINGS, SYSTEM_PATHS, Mounts
from holdfast.terminal.errors import CageSpawnFailed

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
REDUCED = (
    "command lines of other processes on this machine can be read",
    "modes, times and attributes of the same user's files outside can be changed",
    f"`{SETTINGS}` in the working directory can be changed",
    "the private /tmp has no size of its own, and /dev/shm is missing",
)
NO_GUARDED_NETWORK = (
    "the cage of this machine (Landlock) has no network of its own that could be guarded; "
    "allow user namespaces, or set `net: off` or `net: host`"
)
REDUCED_OLD = "signals to processes of the same user are not refused (Landlock before version 6)"


@dataclass(frozen=True, slots=True)
class Landlocked:
    """The second kind of cage: the program keeps a list of places, and no socket of a network."""

    kind: ClassVar[CageKind] = "landlock"
    program: str | None = None

    @property
    def reduced(self) -> tuple[str, ...]:
        """What it does not hold, in words."""
        old = landlock.version() < landlock.SCOPES_SINCE
        return (*REDUCED, REDUCED_OLD) if old else REDUCED

    def confine(self, wanted: Wanted, cleaning: ExitStack) -> Confinement:
        """The command as it is; its process takes on the rules before it becomes the program."""
        policy = wanted.policy
        if policy.egress is not None:
            raise CageSpawnFailed(NO_GUARDED_NETWORK)
        mounts = Mounts(policy, wanted.place, wanted.hiding)
        cleaning.callback(mounts.close)
        _refuse_what_cannot_be_held(mounts)
        private = Path(tempfile.mkdtemp(prefix="holdfast-cage-"))
        if wanted.user is not None:
            os.chown(private, wanted.user.uid, wanted.user.gid)
        rules = landlock.Ruleset(network=policy.net)
        cleaning.callback(rules.close)
        readable = [*_readable(mounts.hidden), *((Path("/etc/resolv.conf"),) if policy.net else ())]
        with ExitStack() as closing:
            rules.read(_opened(readable, closing))
            rules.write(_opened([private, *map(Path, DEVICES)], closing))
        rules.read(mounts.given.values())
        rules.write(mounts.writable.values())
        families = seccomp.FAMILIES if policy.net else seccomp.FAMILIES_WITHOUT_NETWORK
        refused = seccomp.filter_bytes(ptrace=policy.ptrace, families=families)
        return Confinement(
            argv=list(wanted.argv),
            environment=_reachable(
                environment(policy, os.environ, wanted.environment, str(private)), mounts
            ),
            descriptors=(rules.descriptor, wanted.place.descriptor),
            take_on=_taking_on(wanted.place.descriptor, rules.descriptor, refused),
            private=private,
        )


def _taking_on(folder: int, rules: int, refused: bytes) -> Callable[[], None]:
    def take_on() -> None:
        os.fchdir(folder)
        # Nothing that leads outside may be open in the program.
        os.set_inheritable(folder, False)
        os.set_inheritable(rules, False)
        # With them, root reads the memory and the environment of others past all rules.
        capabilities.give_up()
        landlock.take_on(rules)
        seccomp.install(refused)

    return take_on


def _reachable(environment: dict[str, str], mounts: Mounts) -> dict[str, str]:
    """Without the folders of PATH that are not given: a shell stops at what it may not run."""
    given = (*map(Path, SYSTEM_PATHS), *mounts.given, *mounts.writable)
    path = [
        folder
        for folder in environment["PATH"].split(":")
        if any(Path(folder).is_relative_to(place) for place in given)
    ]
    return {**environment, "PATH": ":".join(path) or PATH_DEFAULT}


def _refuse_what_cannot_be_held(mounts: Mounts) -> None:
    """Landlock gives a whole folder or nothing of it."""
    for path in sorted({*mounts.hidden, *mounts.given}):
        around = mounts.around(path)
        if around is not None:
            kept = "hide" if path in mounts.hidden else "keep read-only"
            raise CageSpawnFailed(
                f"the cage of this machine (Landlock) cannot {kept} {path} inside of {around}, "
                "which is writable; move it out, or allow user namespaces"
            )


def _readable(hidden: set[Path]) -> Iterator[Path]:
    for name in (*SYSTEM_PATHS, "/proc"):
        yield from _without(Path(name), hidden)


def _without(path: Path, hidden: set[Path]) -> Iterator[Path]:
    """The folder, or what is in it when something of it is hidden."""
    if not any(path in other.parents for other in hidden):
        yield path
        return
    for entry in path.iterdir():
        # A link gives nothing: its target must be among the rules.
        if entry not in hidden and not entry.is_symlink():
            yield from _without(entry, hidden)


def _opened(paths: Iterable[Path], closing: ExitStack) -> list[int]:
    """Descriptors of those that exist."""
    found = landlock.opened([*paths])
    for descriptor in found:
        closing.callback(os.close, descriptor)
    return found
