"""Files below one folder, and no way out of it: not by `..`, not by a symlink, not by a race.

A path is resolved first, so that links inside the folder work and those that leave it are
refused. Then it is opened component by component without following links, so that a link put
there in between is refused too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.agent.tools.outcome import ToolProblem

FILE_BYTES_MAX = 16 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Place:
    """A resolved path below `root`; no parts means the root itself."""

    root: str
    parts: tuple[str, ...]

    @property
    def relative(self) -> str:
        """The path as the model should name it."""
        return printable("/".join(self.parts) or ".")


def locate(path: str, working_directory: Path) -> Place:
    """Where `path` leads to, or ToolProblem when that is outside of the working directory."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolProblem("The path holds characters that no file name can have.") from None
    if b"\0" in encoded:
        raise ToolProblem("The path holds a NUL character.")
    root = os.path.realpath(working_directory)
    target = os.path.realpath(Path(root) / path)
    if target != root and not target.startswith(root.rstrip("/") + "/"):
        raise ToolProblem(f"{path} is outside of {root}, which cannot be left.")
    return Place(root, tuple(part for part in target[len(root) :].split("/") if part))


def printable(path: str) -> str:
    """The path as valid Unicode; bytes of a name that are not UTF-8 become question marks."""
    return os.fsencode(path).decode("utf-8", errors="replace")


@contextlib.contextmanager
def folder_of(place: Place, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder that holds the place; with `create`, missing ones are made."""
    with _walked(place.root, place.parts[:-1], create=create) as descriptor:
        yield descriptor


@contextlib.contextmanager
def folder_at(place: Place) -> Iterator[int]:
    """A descriptor of the place itself, which must be a folder."""
    with _walked(place.root, place.parts, create=False) as descriptor:
        yield descriptor


def read(place: Place) -> bytes:
    """All bytes of a regular file of at most 16 MiB."""
    with folder_of(place) as folder, _explained(place):
        # Non-blocking, because a pipe would otherwise wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(_name(place), flags, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ToolProblem(f"{place.relative} is {kind}.")
        with os.fdopen(descriptor, "rb", closefd=False) as file, _explained(place):
            content = file.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > FILE_BYTES_MAX:
        raise ToolProblem(f"{place.relative} is larger than 16 MiB; use the shell to look at it.")
    return content


def write(place: Place, content: bytes) -> bool:
    """Replace the file at once or make it, keeping its mode; whether it is new."""
    with folder_of(place, create=True) as folder, _explained(place):
        before = _status(_name(place), folder)
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise ToolProblem(f"{place.relative} exists and is not a regular file.")
        temporary = f".{_name(place)[:200]}.{secrets.token_hex(6)}.tmp"
        try:
            _write_new(temporary, folder, content, before)
            os.rename(temporary, _name(place), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    return before is None


def _write_new(name: str, folder: int, content: bytes, like: os.stat_result | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if like is not None:
            # A worker that runs as root must not take over its operator's files.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _walked(root: str, parts: tuple[str, ...], *, create: bool) -> Iterator[int]:
    place = Place(root, parts)
    with _explained(place):
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with _explained(place):
                following = _enter(part, descriptor, create=create)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


def _enter(part: str, folder: int, *, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    return os.open(part, _FOLDER, dir_fd=folder)


def _name(place: Place) -> str:
    if not place.parts:
        raise ToolProblem("The path is the working directory itself, not a file.")
    return place.parts[-1]


@contextlib.contextmanager
def _explained(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolProblem(f"{place.relative}: {error.strerror or error}") from error
