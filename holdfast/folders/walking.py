"""A path walked part by part below one open folder: no `..`, link or swap leads out of it.

Links are read and followed here, each below the same folder, so every folder on the way is held by
its descriptor and judged by the rules before anything in it is looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.folders.access import Access, Judge, Names

LINKS_MAX = 40
PARTS_MAX = 4096
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Found:
    """Where a path led. `missing` are the last parts of it that do not exist."""

    folders: list[int]
    names: list[str] = field(default_factory=list)
    access: list[Access] = field(default_factory=lambda: [Access.WRITE])
    missing: list[str] = field(default_factory=list)
    file: str | None = None  # the name of what is there, when that is not a folder
    file_access: Access = Access.WRITE

    @property
    def folder(self) -> int:
        """The descriptor (O_PATH) of the deepest folder that exists."""
        return self.folders[-1]

    @property
    def is_folder(self) -> bool:
        """Whether all of the path exists and is a folder."""
        return self.file is None and not self.missing

    @property
    def path(self) -> Names:
        """The names from the root, links resolved."""
        return (*self.names, *self.missing, *([] if self.file is None else [self.file]))

    def leave(self) -> None:
        """Go up by one; the root cannot be left."""
        if self.missing:
            self.missing.pop()
        elif len(self.folders) == 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        else:
            os.close(self.folders.pop())
            self.names.pop()
            self.access.pop()

    def back_to_root(self) -> None:
        """Begin again, for an absolute link."""
        while len(self.folders) > 1:
            self.leave()

    def enter(self, name: str, descriptor: int, access: Access) -> None:
        """Go into a folder; its descriptor is ours from now on."""
        self.folders.append(descriptor)
        self.names.append(name)
        self.access.append(access)

    def close(self) -> None:
        """Let go of every folder."""
        while self.folders:
            os.close(self.folders.pop())


@contextlib.contextmanager
def walked(root: int, root_path: str, path: str, judge: Judge, top: Access) -> Iterator[Found]:
    """Where `path` leads, its folders open meanwhile.

    EXDEV when it leads out, ENOENT when it leads into something hidden.
    """
    found = Found([os.dup(root)], access=[top])
    try:
        _walk(found, _parts_below(path, root_path), root_path, judge)
        yield found
    finally:
        found.close()


def judged(judge: Judge, folder: int, names: Names, above: Access) -> tuple[int, Access]:
    """The last of `names` opened in its folder (O_PATH, links not followed), and its access.

    ENOENT when it is hidden.
    """
    access = judge.of_name(names, above)
    descriptor = -1
    try:
        if access is not Access.HIDDEN:
            descriptor = os.open(names[-1], _LOOK, dir_fd=folder)
            access = judge.of_file(descriptor, os.fstat(descriptor), access)
        if access is Access.HIDDEN:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    return descriptor, access


def _walk(found: Found, parts: list[str] | None, root_path: str, judge: Judge) -> None:
    pending: deque[str] = deque()
    links = steps = 0
    while True:
        if parts is None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        pending.extendleft(reversed(parts))
        parts = []
        if not pending:
            return
        steps += 1
        if steps > PARTS_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        part = pending.popleft()
        target = _step(found, part, judge)
        if target is not None:
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                found.back_to_root()
            parts = _parts_below(target, root_path)


def _step(found: Found, part: str, judge: Judge) -> str | None:
    """Go one part on; the text of a link that is in the way."""
    if found.file is not None:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if part == "..":
        found.leave()
        return None
    names = (*found.names, *found.missing, part)
    if found.missing:
        if judge.of_name(names, found.access[-1]) is Access.HIDDEN:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        found.missing.append(part)
        return None
    return _into(found, part, names, judge)


def _into(found: Found, part: str, names: Names, judge: Judge) -> str | None:
    hidden = judge.of_name(names, found.access[-1]) is Access.HIDDEN
    try:
        descriptor, access = judged(judge, found.folder, names, found.access[-1])
    except FileNotFoundError:
        if hidden or _exists(part, found.folder):
            raise
        found.missing.append(part)
        return None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        found.enter(part, descriptor, access)
        return None
    try:
        if stat.S_ISLNK(mode):
            return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)
    found.file, found.file_access = part, access
    return None


def _exists(name: str, folder: int) -> bool:
    """Whether what was not found is there all the same, and so hidden."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _parts_below(path: str, root_path: str) -> list[str] | None:
    """The parts from the root; None for an absolute path that does not begin with the root's."""
    if path.startswith("/"):
        given, root = Path(path).parts, Path(root_path).parts
        if given[: len(root)] != root:
            return None
        return list(given[len(root) :])
    return [part for part in path.split("/") if part not in ("", ".")]
