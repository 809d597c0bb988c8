"""The blobs of a store in its home, and their files for tests that damage or age them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow


def blob_ids(store: OpenStore) -> set[str]:
    """Every blob that has a file in the home, committed or not; a draft would show, too."""
    files = (store.home / "blobs").rglob("*")
    return {f"sha256:{path.name}" for path in files if path.is_file()}


def blob_file(store: OpenStore, blob_id: str) -> Path:
    """The file of a blob; only tests may know where it lies."""
    return FileHarness(store.home / "blobs").file(blob_id)


def damage_prompt(store: OpenStore, session_id: str, agent: str = "primary") -> None:
    """A prompt of the session whose blob holds other bytes than its name says."""
    blob_id = store.blobs.put(b"You help.").id
    blob_file(store, blob_id).write_bytes(b"You lie.")
    store.write(lambda db: change(db, SessionRow, session_id, prompts={agent: blob_id}))


class FileHarness:
    """What the contract of a blob store needs besides the store: files to break, age and forget."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()

    def file(self, blob_id: str) -> Path:
        digest = blob_id.removeprefix("sha256:")
        return self.folder / "sha256" / digest[:2] / digest[2:4] / digest

    def raw(self, blob_id: str) -> bytes:
        """The bytes as they lie in the store."""
        return self.file(blob_id).read_bytes()

    def damage(self, blob_id: str, raw: bytes) -> None:
        """Other bytes under the same name."""
        self.file(blob_id).write_bytes(raw)

    def lose(self, blob_id: str) -> None:
        """No bytes under that name any more."""
        self.file(blob_id).unlink()

    def age(self, blob_id: str, *, hours: float) -> None:
        """As if the last put was that long ago."""
        _age(self.file(blob_id), hours)

    def leave_draft(self, blob_id: str, *, hours: float) -> None:
        """What a put leaves that was killed that long ago, beside the blob."""
        draft = self.file(blob_id).with_name(f".{'0' * 64}.abcd1234")
        draft.write_bytes(b"half")
        _age(draft, hours)


def _age(file: Path, hours: float) -> None:
    then = time.time() - 3_600 * hours
    os.utime(file, (then, then))
