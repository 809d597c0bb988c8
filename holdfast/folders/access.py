"""What may be done with the files below one folder: judged by what a file is, and by its name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from holdfast.folders.birth import born_ns

# What says which rules hold is never written by those that the rules are for.
SEALED_NAME = ".holdfast"
Names = tuple[str, ...]


class Access(IntEnum):
    """The strictest comes first."""

    HIDDEN = 0  # as if it did not exist
    SEALED = 1  # read only, whatever a deeper rule says
    READ = 2
    WRITE = 3


class Identity(NamedTuple):
    """A file or folder, whatever it is called; an inode number alone is used again."""

    device: int
    inode: int
    born_ns: int


@dataclass(frozen=True)
class Rules:
    """Paths as a project file names them, relative to the folder; `secret` ones are absolute."""

    hidden: Names = ()
    read_only: Names = ()
    read_write: Names = ()
    secret: Names = ()

    def named(self) -> list[tuple[str, Access]]:
        """Each path with what it means, the weakest rule first."""
        return [
            *((name, Access.WRITE) for name in self.read_write),
            *((name, Access.READ) for name in self.read_only),
            *((name, Access.HIDDEN) for name in (*self.hidden, *self.secret)),
        ]


@dataclass
class Judge:
    """The rules, resolved: by the names of files and by the files that had these names."""

    names: dict[Names, Access] = field(default_factory=dict)
    files: dict[Identity, Access] = field(default_factory=dict)
    _inodes: dict[tuple[int, int], list[Identity]] | None = None

    def add(self, names: Names | None, identity: Identity | None, access: Access) -> None:
        """One rule; where two are about the same file the stricter one holds."""
        if names:
            self.names[names] = min(access, self.names.get(names, access))
        if identity is not None:
            self.files[identity] = min(access, self.files.get(identity, access))
            self._inodes = None

    def of_name(self, names: Names, above: Access) -> Access:
        """What the name alone says, in a folder of which `above` is known."""
        if names and names[-1].casefold() == SEALED_NAME:
            above = min(above, Access.SEALED)
        return _narrowed(above, self.names.get(names))

    def of_file(self, descriptor: int, status: os.stat_result, above: Access) -> Access:
        """What the file itself says."""
        if self._inodes is None:
            self._inodes = {}
            for identity in self.files:
                self._inodes.setdefault((identity.device, identity.inode), []).append(identity)
        known = self._inodes.get((status.st_dev, status.st_ino))
        if known is None:
            return above
        born = born_ns(descriptor)
        for identity in known:
            if identity.born_ns == born:
                above = _narrowed(above, self.files[identity])
        return above

    def may_know(self, inode: int) -> bool:
        """Whether a rule is about a file of this inode number, on any device."""
        return any(identity.inode == inode for identity in self.files)

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return {
            "names": [[names, access] for names, access in self.names.items()],
            "files": [[identity, access] for identity, access in self.files.items()],
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Judge:
        """What `to_json` made."""
        return cls(
            {tuple(names): Access(access) for names, access in given["names"]},
            {Identity(*identity): Access(access) for identity, access in given["files"]},
        )


def identity_of(descriptor: int) -> Identity:
    """What this open file is."""
    status = os.fstat(descriptor)
    return Identity(status.st_dev, status.st_ino, born_ns(descriptor))


def _narrowed(above: Access, rule: Access | None) -> Access:
    """A deeper rule counts instead of the one above it, but nothing opens what is shut for good."""
    if rule is None:
        return above
    return rule if above > Access.SEALED else min(above, rule)
