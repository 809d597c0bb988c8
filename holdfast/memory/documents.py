"""Which files of a project are its memory, and what they hold (O-020, O-022)."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.memory import MAX_FILE_BYTES, Document
from holdfast.folders.reading import read_regular

FILES_MAX = 20_000
DEPTH_MAX = 32
HASHES_MAX = 100_000
# A file may be written again within one tick of its clock: a hash is kept once that is over.
SETTLED_NS = 2_000_000_000

ROOT_FILES = ("MEMORY.md", "memory.md")
ROOT_FOLDER = "memory"
IGNORED = frozenset({".git", "node_modules", ".pnpm-store", ".venv", "venv", ".tox", "__pycache__"})


class _Stamp(NamedTuple):
    """A file that has the same one has not changed."""

    mtime_ns: int
    size: int
    inode: int


_hashes: OrderedDict[str, tuple[_Stamp, str]] = OrderedDict()
_hashes_mutex = threading.Lock()


def files_of(project: Path, extra_paths: Sequence[str]) -> list[Document]:
    """The memory files, each once however often it is named. Cheap when little changed."""
    walk = _Walk(project, extra_paths)
    found: dict[tuple[int, int], Document] = {}
    for path in walk.files():
        if len(found) >= FILES_MAX:
            break
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) not in found:
                document = _document(project, path, status)
                if document is not None:
                    found[(status.st_dev, status.st_ino)] = document
        except OSError:
            continue  # gone, or not ours to read
    return sorted(found.values(), key=lambda one: one.path)


def read_file(project: Path, document: Document) -> str:
    """The text of a document that `files_of` found; what is not UTF-8 is replaced."""
    content = read_regular(project / document.path, limit=MAX_FILE_BYTES)
    return content.decode("utf-8", "replace")


def _is_note(name: str) -> bool:
    return name.casefold().endswith(".md")


def _extra_roots(project: Path, extra_paths: Sequence[str]) -> list[Path]:
    return [project / Path(one).expanduser() for one in extra_paths if one.strip()]


class _Walk:
    """Goes through the folders once; links lead only into the project or into an extra path."""

    def __init__(self, project: Path, extra_paths: Sequence[str]) -> None:
        self._project = project
        self._extra = _extra_roots(project, extra_paths)
        self._allowed = [one.resolve() for one in (project, *self._extra)]
        self._seen: set[tuple[int, int]] = set()

    def files(self) -> Iterator[Path]:
        """Every file that may be memory; some may come twice."""
        for name in ROOT_FILES:
            yield from self._file(self._project / name)
        yield from self._folder(self._project / ROOT_FOLDER, 0)
        for extra in self._extra:
            if extra.is_file():
                yield extra
            else:
                yield from self._folder(extra, 0)

    def _file(self, path: Path) -> Iterator[Path]:
        if path.is_file() and self._may_follow(path):
            yield path

    def _folder(self, folder: Path, depth: int) -> Iterator[Path]:
        if depth > DEPTH_MAX or not self._may_follow(folder):
            return
        try:
            status = folder.stat()
            entries = sorted(folder.iterdir())
        except OSError:
            return
        if (status.st_dev, status.st_ino) in self._seen:
            return  # a link that leads back
        self._seen.add((status.st_dev, status.st_ino))
        for path in entries:
            if _is_note(path.name) and not path.is_dir():
                yield from self._file(path)
            elif path.name not in IGNORED and path.is_dir():
                yield from self._folder(path, depth + 1)

    def _may_follow(self, path: Path) -> bool:
        """Asked at every step, so only the last part can be a link that leads outside."""
        if not path.is_symlink():
            return True
        target = path.resolve()
        return any(target.is_relative_to(one) for one in self._allowed)


def _document(project: Path, path: Path, status: os.stat_result) -> Document | None:
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
        return None
    name = _name(project, path)
    if name is None:
        return None
    stamp = _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)
    return Document(
        path=name,
        source="memory",
        hash=_hash(path, stamp),
        mtime_ms=status.st_mtime_ns // 1_000_000,
        size=status.st_size,
    )


def _name(project: Path, path: Path) -> str | None:
    """Relative to the project if it is inside; None for a name that is not text."""
    inside = path.is_relative_to(project)
    name = (path.relative_to(project) if inside else path.absolute()).as_posix()
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return name


def _hash(path: Path, stamp: _Stamp) -> str:
    key = os.fspath(path.absolute())
    with _hashes_mutex:
        known = _hashes.get(key)
        if known is not None and known[0] == stamp:
            _hashes.move_to_end(key)
            return known[1]
    found = hashlib.sha256(read_regular(path, limit=MAX_FILE_BYTES)).hexdigest()
    if time.time_ns() - stamp.mtime_ns > SETTLED_NS:
        with _hashes_mutex:
            _hashes[key] = (stamp, found)
            while len(_hashes) > HASHES_MAX:
                _hashes.popitem(last=False)
    return found
