"""What is mounted where in a bubblewrap cage: every folder of somebody's work by its descriptor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from holdfast.folders import kernel_places
from holdfast.folders.hidden import is_hidden
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import Place, open_named, open_named_below, real_path
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.errors import CageSpawnFailed

SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
# Root's cage is root outside, so the mode of these files would not keep it from reading them.
SECRET_PATHS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private")
SETTINGS = ".holdfast"


class Mounts:
    """The rules of one cage; `descriptors` are to be handed to bubblewrap, and closed after it.

    `writable` and `given` (read-only) are what the program gets, open; `hidden` is what it is not
    to see.
    """

    def __init__(self, policy: CagePolicy, place: Place, hiding: Hiding) -> None:
        self._cleaning = ExitStack()
        self._rules: dict[Path, list[str]] = {}
        self.writable: dict[Path, int] = {}
        self.hidden: set[Path] = set()
        self.given: dict[Path, int] = {}
        self._pinned: list[Path] = []
        self._place, self._hiding = place, hiding
        try:
            self._decide(policy)
        except BaseException:
            self.close()
            raise

    def arguments(self) -> list[list[str]]:
        """Outer paths first, so that a deeper rule overrides the one around it."""
        return [self._rules[path] for path in sorted(self._rules, key=lambda path: len(path.parts))]

    @property
    def descriptors(self) -> list[int]:
        """What the arguments name; bubblewrap closes each, so that none is open inside."""
        binds = [rule for rule in self._rules.values() if rule[0].endswith("-fd")]
        return [int(rule[1]) for rule in binds]

    def close(self) -> None:
        """Close all descriptors."""
        self._cleaning.close()

    def _decide(self, policy: CagePolicy) -> None:
        place = self._place
        for name in SYSTEM_PATHS:
            self._rules[Path(name)] = _system(Path(name))
        if policy.net:
            # Often a link into /run, which is empty inside.
            resolver = Path("/etc/resolv.conf").resolve()
            self._rules[resolver] = ["--ro-bind-try", str(resolver), str(resolver)]
        working = os.dup(place.descriptor)
        self._keep(working)
        self.writable[place.path] = working
        for path in sorted(map(self._absolute, policy.fs_read_write), key=_depth):
            self._give(path, writable=True)
        for path in map(self._absolute, policy.fs_read_only):
            self._give(path, writable=False)
        foreign = kernel_places.below((*self.writable, *self.given))
        if foreign is not None:
            # A bind brings along what is mounted below.
            words = f"{foreign.place} in it ({foreign.kind}) {kernel_places.WORDS}"
            raise CageSpawnFailed(f"a cage cannot be given this folder: {words}")
        names = (*SECRET_PATHS, *policy.fs_hidden, *map(str, place.hidden))
        told = set(map(self._absolute, policy.fs_hidden))
        for path in sorted(map(self._absolute, names), key=_depth):
            self._hide(path, told=path in told)
        for folder in (*self.writable, *filter(None, [place.project])):
            self._protect(folder / SETTINGS)
        for path in self._pinned:
            self._pin(path)
        for path, descriptor in self.writable.items():
            self._bind("--bind-fd", descriptor, path)

    def _give(self, path: Path, *, writable: bool) -> None:
        """A path of the policy: below a writable folder its links must stay in that folder."""
        descriptor = self._open(path)
        if descriptor is None:
            raise CageSpawnFailed(f"the cage names a path that does not exist: {path}")
        real, place = real_path(descriptor), self._place
        if is_hidden(real, place.hidden, given=place.root):
            raise CageSpawnFailed(f"the cage cannot be given {real}: it holds secrets")
        if real == Path("/") or kernel_places.is_of_kernel(real, descriptor):
            raise CageSpawnFailed(f"a cage cannot be given the whole disk or {real}")
        if writable:
            self.writable[real] = descriptor
        else:
            self.given[real] = descriptor
            self._bind("--ro-bind-fd", descriptor, real)
            self._pinned.append(real)

    def _hide(self, name: Path, *, told: bool) -> None:
        """Nothing of it is seen inside; `told` by the policy, it is missed when it was moved."""
        path = name.resolve()
        if path != name and self.around(name) is not None:
            raise CageSpawnFailed(
                f"`fs.hidden` names {name}, which is behind a link that a program could change; "
                f"name {path} instead"
            )
        if self._is_covered(path):
            return
        if told or self.around(path) is not None:
            self._hiding.check(path)
        if path.is_dir():
            self._rules[path] = ["--tmpfs", str(path)]
        elif path.exists():
            self._rules[path] = ["--ro-bind", "/dev/null", str(path)]
        if path in self._rules:
            self.hidden.add(path)
            self._pinned.append(path)

    def _protect(self, path: Path) -> None:
        """Settings of a project can be read but not changed; where there are none, nothing is."""
        around = self.around(path)
        if around is None or path in self._rules or self._is_covered(path):
            return
        if path.is_symlink():
            raise CageSpawnFailed(f"{path} is a link; a cage needs a folder there")
        descriptor = self._open(path)
        if descriptor is not None:
            self._bind("--ro-bind-fd", descriptor, path)
            self._pinned.append(path)

    def _pin(self, path: Path) -> None:
        """Mount the folders between `path` and the writable one around it: none can be renamed."""
        around = self.around(path)
        for folder in path.parents if around is not None else ():
            if folder == around:
                return
            if folder not in self._rules and not self._is_covered(folder):
                descriptor = self._open(folder)
                if descriptor is None:
                    raise CageSpawnFailed(f"{folder} went away while the cage was set up")
                self._bind("--bind-fd", descriptor, folder)

    def _is_covered(self, path: Path) -> bool:
        """Whether a hidden folder stands before it, and nothing writable in between."""
        around = self.around(path)
        covering = [folder for folder in self.hidden if folder in path.parents]
        return any(around is None or around in folder.parents for folder in covering)

    def around(self, path: Path) -> Path | None:
        """The deepest writable folder above a path."""
        return max((own for own in self.writable if own in path.parents), key=_depth, default=None)

    def _open(self, path: Path) -> int | None:
        """A descriptor of what is there, past every later swap; None when nothing is."""
        around = self.around(path)
        try:
            if around is None:
                path = path.resolve()
                around = self.around(path)
            if around is None:
                descriptor = open_named(path)
            else:
                below = str(path.relative_to(around))
                descriptor = open_named_below(self.writable[around], below)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CageSpawnFailed(
                f"the cage cannot be given {path}: it leads out of its folder ({error.strerror})"
            ) from error
        self._keep(descriptor)
        return descriptor

    def _keep(self, descriptor: int) -> None:
        self._cleaning.callback(os.close, descriptor)

    def _bind(self, option: str, descriptor: int, path: Path) -> None:
        self._rules[path] = [option, str(descriptor), str(path)]

    def _absolute(self, name: str) -> Path:
        return Path(os.path.normpath(self._place.path / Path(name).expanduser()))


def hidden_folders(mounts: Sequence[Sequence[str]]) -> list[str]:
    """The empty folders that stand before hidden ones."""
    return [arguments[1] for arguments in mounts if arguments[0] == "--tmpfs"]


def _system(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind-try", str(path), str(path)]


def _depth(path: Path) -> int:
    return len(path.parts)
