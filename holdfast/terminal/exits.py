"""What the host must not forget: one folder per process with its request, its exit, its transcript.

The request is on disk before the program runs, so a key is never run twice, not even by the next
host; the exit is on disk before anybody hears of it. A cage is set up while the disk is waited for.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.terminal.records import Exit, SpawnRequest

logger = logging.getLogger(__name__)

KEEP_SECONDS = 24 * 3600
FOLDERS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A process as its folder tells it; `exit` is None if no host saw the end."""

    folder: Path
    request: SpawnRequest
    started_at_ms: int
    exit: Exit | None


class Folder:
    """The place of one key on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def transcript(self) -> Path:
        """Where the output goes."""
        return self.path / "transcript"

    def write_request(self, request: SpawnRequest, started_at_ms: int) -> None:
        """Claim the key; for good with `make_durable`, which the program waits for.

        Environment values are left out: they may be secrets.
        """
        self.path.mkdir(parents=True, mode=0o700)
        kept = {**request.to_json(), "env": {}}
        claim = {"request": kept, "started_at_ms": started_at_ms}
        _write(self._request, claim, durably=False)

    def make_durable(self) -> None:
        """From here on the claim survives a loss of power too, not only the end of this host."""
        _sync(self._request)
        _sync(self.path)

    @property
    def _request(self) -> Path:
        return self.path / "request.json"

    def write_exit(self, over: Exit) -> None:
        """Record how the process ended; on a full disk only this host will know."""
        try:
            _write(self.path / "exit.json", asdict(over), durably=True)
        except OSError:
            logger.exception("the exit of %s is not on disk", self.path)

    def remove(self) -> None:
        """Free the key; only for a program that never ran and for expired records."""
        shutil.rmtree(self.path, ignore_errors=True)


class Folders:
    """All processes of all hosts that used this state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def of(self, key: str) -> Folder:
        """The folder of a key, whether or not it exists."""
        return Folder(self.root / hashlib.sha256(key.encode()).hexdigest()[:32])

    def find(self, key: str) -> Recorded | None:
        """What is recorded under a key."""
        return _read(self.of(key).path)

    def expired(self, before: float) -> Iterator[Folder | None]:
        """Step through all folders: those whose process ended before that time, None for others."""
        for path in self.root.iterdir():
            try:
                ended = (path / "exit.json").stat().st_mtime
            except OSError:
                ended = before
            yield Folder(path) if ended < before else None

    def all(self) -> Iterator[Recorded]:
        """Everything recorded, in no order; folders that a crash left unfinished are removed."""
        for number, path in enumerate(self.root.iterdir()):
            if number >= FOLDERS_MAX:
                return
            recorded = _read(path)
            if recorded is None:
                # Without a request nothing was ever run here.
                shutil.rmtree(path, ignore_errors=True)
            else:
                yield recorded


def _read(path: Path) -> Recorded | None:
    try:
        claim = json.loads((path / "request.json").read_bytes())
        request = SpawnRequest.from_json(claim["request"])
    except (OSError, ValueError, KeyError):
        return None
    return Recorded(path, request, int(claim["started_at_ms"]), _read_exit(path / "exit.json"))


def _read_exit(path: Path) -> Exit | None:
    try:
        return Exit.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, value: Mapping[str, Any], *, durably: bool) -> None:
    """The whole value or nothing, whenever this host ends; durably: whenever the power fails."""
    draft = path.with_suffix(".draft")
    private = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(private, "wb") as file:
        file.write(json.dumps(value).encode())
        file.flush()
        if durably:
            os.fsync(file.fileno())
    draft.rename(path)
    if durably:
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
