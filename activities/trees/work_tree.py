"""The files of one working directory for snapshots: by descriptor, and never through a link."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.folders.confined import Confined, confined

FOLDERS_DEPTH_MAX = 200
EXCLUDE_BYTES_MAX = 1024 * 1024
_ENTER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LINK, PROGRAM, PLAIN = "120000", "100755", "100644"


@dataclass(frozen=True)
class Saved:
    """What a snapshot keeps of one path: its mode in git's words, and its bytes."""

    mode: str
    content: bytes


class WorkTree:
    """The folder and what is in it; paths are relative and as git writes them."""

    def __init__(self, place: Confined) -> None:
        self.place = place
        # The folders from the root to the one that was used last, each entered from its parent.
        self._names: list[str] = []
        self._folders: list[int] = []

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[WorkTree]:
        """The folder at a real path; OSError when a part of the path is a link by now."""
        with confined(folder) as place:
            tree = cls(place)
            try:
                yield tree
            finally:
                tree.forget()

    def forget(self) -> None:
        """Enter every folder anew from now on."""
        while self._folders:
            os.close(self._folders.pop())
        self._names.clear()

    def status(self, path: str) -> os.stat_result | None:
        """Of the file itself; None when it is gone, or lies behind a link."""
        try:
            folder, name = self._folder_of(path)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None

    def read(self, path: str, limit: int) -> tuple[Saved, os.stat_result]:
        """A file or a link as it is now, with the status that belongs to these bytes."""
        folder, name = self._folder_of(path)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return Saved(LINK, os.fsencode(os.readlink(name, dir_fd=folder))), found
        descriptor = os.open(name, _READ, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            content = file.read(limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return Saved(mode_of(found), content), found

    def can_be_read(self, path: str) -> bool:
        """Whether we may open the file."""
        try:
            folder, name = self._folder_of(path)
            return os.access(name, os.R_OK, dir_fd=folder)
        except OSError:
            return False

    def write(self, path: str, saved: Saved) -> None:
        """Put the file or link there at once, with its folders; what was there is replaced."""
        folder, name = self._folder_of(path, create=True)
        temporary = f".{secrets.token_hex(12)}.tmp"
        try:
            if saved.mode == LINK:
                os.symlink(os.fsdecode(saved.content), temporary, dir_fd=folder)
            else:
                mode = 0o777 if saved.mode == PROGRAM else 0o666
                with os.fdopen(os.open(temporary, _NEW, mode, dir_fd=folder), "wb") as file:
                    file.write(saved.content)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise

    def delete(self, path: str) -> None:
        """Remove a file, and the folders that held nothing else."""
        folder, name = self._folder_of(path)
        os.unlink(name, dir_fd=folder)
        *above, _ = path.split("/")
        while above:
            holder, last = self._folder_of("/".join(above))
            try:
                os.rmdir(last, dir_fd=holder)
            except OSError:
                return
            above.pop()

    def local_excludes(self) -> str:
        """What the user's repository excludes on this machine; nothing when it is too much."""
        try:
            with self.place.find(".git/info/exclude") as found:
                content = self.place.read(found, limit=EXCLUDE_BYTES_MAX)
        except OSError:
            return ""
        return content.decode("utf-8", errors="replace")

    def _folder_of(self, path: str, *, create: bool = False) -> tuple[int, str]:
        *wanted, name = path.split("/")
        if len(wanted) > FOLDERS_DEPTH_MAX or {"", ".", ".."} & {*wanted, name}:
            raise OSError(errno.EINVAL, "no path of a file below the folder", path)
        shared = 0
        while shared < min(len(wanted), len(self._names)) and wanted[shared] == self._names[shared]:
            shared += 1
        while len(self._names) > shared:
            self._names.pop()
            os.close(self._folders.pop())
        for part in wanted[shared:]:
            above = self._folders[-1] if self._folders else self.place.root
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
            self._folders.append(os.open(part, _ENTER, dir_fd=above))
            self._names.append(part)
        return (self._folders[-1] if self._folders else self.place.root), name


def mode_of(found: os.stat_result) -> str:
    """The mode of a file or link in git's words."""
    if stat.S_ISLNK(found.st_mode):
        return LINK
    return PROGRAM if found.st_mode & 0o100 else PLAIN
