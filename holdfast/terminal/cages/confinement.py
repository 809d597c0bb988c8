"""A program as it is started in a cage, and what every kind of cage can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.domain.cages.shown import CageKind
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import Place
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.cages.users import OsUser

# The word that opens a gate.
OPEN = b"x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to run in a cage, and where."""

    policy: CagePolicy
    argv: Sequence[str]
    place: Place
    hiding: Hiding
    environment: Mapping[str, str] = field(default_factory=dict)
    terminal: bool = False
    user: OsUser | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The command to start, what it inherits, and what its process does to itself before.

    `status` is where bubblewrap reports the program's end. `private` is a folder of its own, to be
    removed after the end. The program waits, in its finished cage, until something is written to
    `gate`; where there is none, it starts at once.
    """

    argv: list[str]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()
    take_on: Callable[[], None] | None = None
    status: int | None = None
    private: Path | None = None
    gate: int | None = None


class Cage(Protocol):
    """One way to hold a program, found to work on this machine."""

    @property
    def kind(self) -> CageKind:
        """Its name."""

    @property
    def program(self) -> str | None:
        """What builds it, if it is a program."""

    @property
    def reduced(self) -> tuple[str, ...]:
        """What it does not hold, in words."""

    def confine(self, wanted: Wanted, cleaning: ExitStack) -> Confinement:
        """How to start it; what only the start needs is closed by `cleaning`."""
