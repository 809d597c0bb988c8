"""The files of one folder, opened once: read, written and listed by descriptor, under rules.

Nothing waits for a pipe or a device, nothing is read beyond its limit, and a swap of the folder or
of anything in it changes at most which of the folder's own files is meant.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.folders import kernel_places
from holdfast.folders.access import SEALED_NAME, Access, Judge, Names
from holdfast.folders.opened import open_root
from holdfast.folders.walking import Found, judged, walked

FILE_BYTES_MAX = 16 * 1024 * 1024
# Bits that make a program run as somebody else are not kept for content that a model wrote.
PLAIN_MODE = 0o777
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INSIDE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotRegular(OSError):
    """A folder, pipe, device or socket where a file is meant."""


class TooLarge(OSError):
    """More bytes than the limit, by the size that the file shows or while it was read."""


@dataclass(frozen=True)
class Confined:
    """One folder; `path` is its real path, for absolute names and for messages."""

    root: int
    path: str
    judge: Judge

    @property
    def top(self) -> Access:
        """The access of the folder itself: one inside a sealed folder is sealed."""
        inside = SEALED_NAME in (part.casefold() for part in Path(self.path).parts)
        return Access.SEALED if inside else Access.WRITE

    @contextlib.contextmanager
    def find(self, path: str) -> Iterator[Found]:
        """Where `path` leads, links below the folder followed."""
        with walked(self.root, self.path, path, self.judge, self.top) as found:
            yield found

    def read(self, found: Found, *, limit: int = FILE_BYTES_MAX) -> bytes:
        """All bytes of the regular file that was found."""
        if found.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if found.file is None:
            raise NotRegular(errno.EISDIR, _folder_words(found))
        above = found.access[-1]
        return self.read_in(found.folder, (*found.names, found.file), above, limit=limit)

    def read_in(self, folder: int, names: Names, above: Access, *, limit: int) -> bytes:
        """The regular file called by the last of `names` in an open folder; no link is followed."""
        seen, _ = judged(self.judge, folder, names, above)
        try:
            # A device is not even opened: that alone may wind a tape.
            status = _regular(seen)
        finally:
            os.close(seen)
        descriptor = os.open(names[-1], _READ, dir_fd=folder)
        try:
            now = _regular(descriptor)
            if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
                access = self.judge.of_file(descriptor, now, above)
                if access is Access.HIDDEN:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if now.st_size > limit:
                raise TooLarge(errno.EFBIG, os.strerror(errno.EFBIG))
            return _bytes_of(descriptor, limit)
        finally:
            os.close(descriptor)

    def write(self, found: Found, content: bytes) -> bool:
        """Replace the file at once or make it with its folders, keeping its mode; is it new?"""
        name = self._prepare(found)
        before = _status(name, found.folder)
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise NotRegular(errno.EINVAL, "exists and is not a regular file")
        temporary = f".{os.fsdecode(os.fsencode(name)[:200])}.{secrets.token_hex(6)}.tmp"
        try:
            _write_new(temporary, found.folder, content, before)
            os.rename(temporary, name, src_dir_fd=found.folder, dst_dir_fd=found.folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=found.folder)
            raise
        return before is None

    def _prepare(self, found: Found) -> str:
        """Make the folders that are missing; the name of the file. Refused where it is not ours."""
        if found.is_folder:
            raise NotRegular(errno.EISDIR, _folder_words(found))
        *folders, name = found.missing if found.file is None else [found.file]
        access = found.access[-1] if found.file is None else found.file_access
        names = tuple(found.names)
        for part in found.missing:
            names = (*names, part)
            access = self.judge.of_name(names, access)
        if access < Access.WRITE:
            raise PermissionError(errno.EACCES, "is read-only here")
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=found.folder)
            self._enter(found, part)
        found.missing.clear()
        return str(name)

    def _enter(self, found: Found, part: str) -> None:
        names = (*found.names, part)
        descriptor, access = judged(self.judge, found.folder, names, found.access[-1])
        problem: OSError | None = None
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            problem = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        elif access < Access.WRITE:
            problem = PermissionError(errno.EACCES, "is read-only here")
        if problem is not None:
            os.close(descriptor)
            raise problem
        found.enter(part, descriptor, access)


@contextlib.contextmanager
def confined(path: str | Path, judge: Judge | None = None) -> Iterator[Confined]:
    """The folder at a real absolute path; ELOOP when a part of it became a link since.

    EPERM for a place of the kernel.
    """
    root = open_root(Path(path))
    try:
        if kernel_places.is_of_kernel(Path(path), root):
            raise PermissionError(errno.EPERM, kernel_places.WORDS, str(path))
        yield Confined(root, str(path), judge or Judge())
    finally:
        os.close(root)


@contextlib.contextmanager
def scanned(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder that is held by its descriptor."""
    descriptor = os.open(".", _INSIDE, dir_fd=folder)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _folder_words(found: Found) -> str:
    own = "is the working directory itself, not a file"
    return "is a folder, not a regular file" if found.names else own


def _regular(descriptor: int) -> os.stat_result:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise NotRegular(errno.EISDIR, "is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, "is not a regular file")
    return status


def _bytes_of(descriptor: int, limit: int) -> bytes:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise TooLarge(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write_new(name: str, folder: int, content: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if like is not None:
            # A worker that runs as root must not take over its operator's files.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, like.st_mode & PLAIN_MODE)
        os.fsync(descriptor)
