"""Rules of paths, resolved to the files that they are about, and remembered across renames."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from holdfast.folders.access import Access, Identity, Judge, Names, Rules, identity_of
from holdfast.folders.confined import Confined
from holdfast.folders.walking import walked

FOLDERS_KEPT = 1024
FILES_KEPT = 256
_LOOK = os.O_PATH | os.O_CLOEXEC


class Memory:
    """What the hidden names of a folder led to before: a rename of a parent reveals nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[int, int, Rules], dict[Identity, None]] = OrderedDict()

    def with_earlier(self, root: int, rules: Rules, hidden: set[Identity]) -> set[Identity]:
        """`hidden` and what was hidden by the same rules of this folder before."""
        status = os.fstat(root)
        key = (status.st_dev, status.st_ino, rules)
        with self._lock:
            known = self._seen.setdefault(key, {})
            self._seen.move_to_end(key)
            known.update(dict.fromkeys(hidden))
            while len(known) > FILES_KEPT:
                del known[next(iter(known))]
            while len(self._seen) > FOLDERS_KEPT:
                self._seen.popitem(last=False)
            return set(known)


_MEMORY = Memory()


def judge_of(root: int, path: str, rules: Rules) -> Judge:
    """The rules as they are about the files below `root`, whose real path is `path`."""
    judge = Judge()
    hidden: set[Identity] = set()
    place = Confined(root, path, Judge())
    for name, access in rules.named():
        wanted = os.path.normpath(Path(path) / Path(name).expanduser())
        names = _names_below(wanted, path)
        if names == ():
            continue  # the folder itself: it is what the session works in
        if names is not None:
            judge.add(names, None, access)
        found_names, identity = _looked_up(place, wanted)
        judge.add(found_names, identity, access)
        if identity is not None and access is Access.HIDDEN:
            hidden.add(identity)
    for identity in _MEMORY.with_earlier(root, rules, hidden):
        judge.add(None, identity, Access.HIDDEN)
    own = identity_of(root)
    judge.files.pop(own, None)
    return judge


def _looked_up(place: Confined, wanted: str) -> tuple[Names | None, Identity | None]:
    """The names and the file that a rule's path leads to now, links followed."""
    if _names_below(wanted, place.path) is None:
        return _outside(place, wanted)
    try:
        with walked(place.root, place.path, wanted, place.judge, Access.WRITE) as found:
            if found.missing:
                return found.path, None
            if found.file is None:
                return found.path, identity_of(found.folder)
            descriptor = os.open(found.file, _LOOK | os.O_NOFOLLOW, dir_fd=found.folder)
            try:
                return found.path, identity_of(descriptor)
            finally:
                os.close(descriptor)
    except OSError:
        return _outside(place, wanted)


def _outside(place: Confined, wanted: str) -> tuple[Names | None, Identity | None]:
    try:
        descriptor = os.open(wanted, _LOOK)
    except OSError:
        return None, None
    try:
        return _names_below(os.path.realpath(wanted), place.path), identity_of(descriptor)
    finally:
        os.close(descriptor)


def _names_below(path: str, root: str) -> Names | None:
    given, own = Path(path).parts, Path(root).parts
    return given[len(own) :] if given[: len(own)] == own else None
