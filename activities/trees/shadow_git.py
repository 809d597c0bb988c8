"""Git in a folder of our own: it never reads or writes the user's repository, index or config.

It lists the working directory, but the files themselves are read and written by us: git would
follow a folder that was swapped for a link between two looks of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import secrets
import subprocess
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from activities.trees.work_tree import WorkTree
from holdfast.settings.part_environments import machine_environment

COMMAND_TIMEOUT_S = 60.0
LIST_TIMEOUT_S = 20.0
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
WHO = "holdfast"
ADDRESS = "holdfast@localhost"
# The same files give the same snapshot id, whenever they are saved.
WHEN = "1000000000 +0000"

# One meaning for bytes everywhere: no line-ending changes, no filters, no keywords.
ATTRIBUTES = "* -text -ident -filter !eol !working-tree-encoding\n"
CONFIG = """\
[core]
\tsharedRepository = 0600
\trepositoryformatversion = 0
\tbare = false
\tfileMode = true
\tsymlinks = true
\tautocrlf = false
\tsafecrlf = false
\tcompression = 1
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tfsmonitor = false
\tquotePath = false
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


class GitTrouble(Exception):
    """Git said no, or took too long."""


class TooMany(Exception):
    """More paths than the limit, or too many to be listed in time."""


class ShadowGit:
    """The git folder behind the snapshots of one working directory."""

    def __init__(
        self, folder: Path, tree: WorkTree | None = None, *, hidden: Sequence[Path] = ()
    ) -> None:
        self.folder = folder
        self._tree = tree
        self._hidden = hidden

    @staticmethod
    def name_of(work_tree: Path) -> str:
        """The name of the git folder of a working directory."""
        return hashlib.sha256(os.fsencode(work_tree)).hexdigest()[:24]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other sessions in the same working directory."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.folder / "holdfast.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._prepare()
            yield
        finally:
            os.close(file)

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        index: str = "index",
        accepted: Sequence[int] = (0,),
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> bytes:
        """One git command; its output, or GitTrouble with what it said."""
        with self._started(arguments, index, subprocess.PIPE) as process:
            try:
                output, errors = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                words = f"git {arguments[0]} took longer than {timeout_s:.0f} s"
                raise GitTrouble(words) from error
        if process.returncode not in accepted:
            said = errors.decode("utf-8", "replace").strip()
            raise GitTrouble(f"git {arguments[0]}: {said[-500:]}")
        return output

    @contextlib.contextmanager
    def _started(
        self, arguments: Sequence[str], index: str, errors: int
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A git process in the working directory, held by descriptor; it is gone afterwards."""
        where = self.folder if self._tree is None else f"/proc/self/fd/{self._tree.place.root}"
        try:
            process = subprocess.Popen(
                ["git", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment(index),
                cwd=where,
            )
        except OSError as error:
            raise GitTrouble(f"git could not be started: {error.strerror}") from error
        with process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # A .gitignore may be of any size, and git reads it whole.
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            try:
                yield process
            finally:
                process.kill()

    def listed(self, *arguments: str, count_max: int) -> list[str]:
        """NUL-separated paths of one git command; TooMany as soon as the limit is passed."""
        with self._started(arguments, "index", subprocess.DEVNULL) as process:
            assert process.stdin is not None, "the pipe was asked for"
            process.stdin.close()
            # The pipe ends when git does, so a deadline on git is one on the reading too.
            deadline = threading.Timer(LIST_TIMEOUT_S, process.kill)
            deadline.start()
            try:
                return _read_paths(process, count_max)
            finally:
                deadline.cancel()

    def beginning(self, *arguments: str, bytes_max: int) -> tuple[bytes, bool]:
        """What one git command prints, up to a limit, and whether that is all."""
        with self._started(arguments, "index", subprocess.DEVNULL) as process:
            assert process.stdin is not None, "the pipe was asked for"
            assert process.stdout is not None, "the pipe was asked for"
            process.stdin.close()
            deadline = threading.Timer(COMMAND_TIMEOUT_S, process.kill)
            deadline.start()
            try:
                printed = process.stdout.read(bytes_max + 1)
                if len(printed) > bytes_max:
                    return printed[:bytes_max], False
                code = process.wait()
            finally:
                deadline.cancel()
        if code != 0:
            raise GitTrouble(f"git failed or took longer than {COMMAND_TIMEOUT_S:.0f} s")
        return printed, True

    def piped(self, *arguments: str, bytes_max: int) -> bytes:
        """What one git command prints; TooMany as soon as the limit is passed."""
        printed, whole = self.beginning(*arguments, bytes_max=bytes_max)
        if not whole:
            raise TooMany
        return printed

    def has_snapshot(self, snapshot: str) -> bool:
        """Whether all of a snapshot is here: its reference is written last."""
        found = self.run("for-each-ref", "--format=%(objectname)", f"refs/snapshots/{snapshot}")
        return found.decode().strip() == snapshot

    def keep_snapshot(self, snapshot: str) -> None:
        """Write the reference of a snapshot that is whole; the sweep spares it for a day."""
        self.run("update-ref", f"refs/snapshots/{snapshot}", snapshot)
        self.mark_recent(snapshot)

    def contents(self, blobs: Iterable[str]) -> Iterator[bytes]:
        """The bytes of each blob in turn."""
        command = ("cat-file", "--batch")
        with self._started(command, "index", subprocess.DEVNULL) as process:
            assert process.stdin is not None, "the pipe was asked for"
            assert process.stdout is not None, "the pipe was asked for"
            for blob in blobs:
                process.stdin.write(blob.encode() + b"\n")
                process.stdin.flush()
                words = process.stdout.readline().split()
                if len(words) != 3:
                    raise GitTrouble(f"git has no blob {blob}")
                size = int(words[2])
                content = process.stdout.read(size + 1)
                if len(content) != size + 1:
                    raise GitTrouble(f"git gave no whole blob {blob}")
                yield content[:-1]

    def put(self, content: bytes) -> str:
        """Store bytes as a blob; its id."""
        whole = b"blob %d\0%b" % (len(content), content)
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        place = self.folder / "objects" / name[:2] / name[2:]
        if place.exists():
            return name
        place.parent.mkdir(exist_ok=True, mode=0o700)
        draft = place.with_name(f"tmp_obj_{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            file.write(zlib.compress(whole, 1))
            file.flush()
            os.fsync(descriptor)
        draft.replace(place)
        return name

    def mark_recent(self, name: str) -> None:
        """Remember that this snapshot was asked for just now."""
        (self.folder / "recent").mkdir(exist_ok=True, mode=0o700)
        (self.folder / "recent" / name).touch(mode=0o600)

    def recent(self, age_s: float) -> set[str]:
        """The snapshots that were asked for that lately; older marks are removed."""
        oldest = time.time() - age_s
        marks = list((self.folder / "recent").glob("*"))
        for mark in marks:
            if mark.stat().st_mtime < oldest:
                mark.unlink()
        return {mark.name for mark in marks if mark.exists()}

    def _prepare(self) -> None:
        """The few files that make a folder a repository; written again, so nobody can bend them."""
        for name in ("objects", "refs", "info"):
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        for lock in ("index.lock", "next.lock"):
            # Left by a git that was killed: we hold the folder's lock, so nobody uses it.
            (self.folder / lock).unlink(missing_ok=True)
        for name, text in (
            ("HEAD", "ref: refs/heads/none\n"),
            ("config", CONFIG),
            ("info/attributes", ATTRIBUTES),
            ("info/exclude", self._excluded()),
        ):
            path = self.folder / name
            if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8", errors="replace")

    def _excluded(self) -> str:
        """What the user's repository excludes on this machine, and our own home."""
        if self._tree is None:
            return "\n"
        work_tree, lines = Path(self._tree.place.path), []
        for hidden in self._hidden:
            if hidden != work_tree and hidden.is_relative_to(work_tree):
                lines.append(f"/{hidden.relative_to(work_tree)}/")
        return "\n".join([*lines, self._tree.local_excludes()]) + "\n"

    def _environment(self, index: str) -> dict[str, str]:
        return {
            **machine_environment(os.environ),
            "LC_ALL": "C",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "GIT_DIR": str(self.folder),
            "GIT_WORK_TREE": ".",
            "GIT_INDEX_FILE": str(self.folder / index),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": WHO,
            "GIT_AUTHOR_EMAIL": ADDRESS,
            "GIT_AUTHOR_DATE": WHEN,
            "GIT_COMMITTER_NAME": WHO,
            "GIT_COMMITTER_EMAIL": ADDRESS,
            "GIT_COMMITTER_DATE": WHEN,
        }


def joined(paths: Iterable[str]) -> bytes:
    """Paths as git reads them with `-z --stdin`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _read_paths(process: subprocess.Popen[bytes], count_max: int) -> list[str]:
    assert process.stdout is not None, "the pipe was asked for"
    rest = b""
    paths: list[str] = []
    with process.stdout as output:
        while chunk := os.read(output.fileno(), 1 << 16):
            *whole, rest = (rest + chunk).split(b"\0")
            paths += map(os.fsdecode, whole)
            if len(paths) > count_max:
                raise TooMany
    code = process.wait()
    if code < 0:
        raise TooMany
    if code != 0:
        raise GitTrouble("git could not list the files")
    return paths
