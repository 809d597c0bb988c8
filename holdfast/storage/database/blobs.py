"""Content-addressed payloads: canonicalise, hash, write, verify, and only then commit the row."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import zstandard

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import find_row, fresh, insert_once
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.database.trouble import unwritable_file

COMPRESS_FROM_BYTES = 256


class BlobMissing(Exception):
    """The bytes of a committed blob are gone or changed."""


class BlobFolder:
    """The bytes. A blob that no row names is an orphan, never a dangling fact."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> Blob:
        """Write `data` once and verify it; commit the row it answers with `commit`."""
        digest = sha256(data)
        compressed = len(data) >= COMPRESS_FROM_BYTES
        key = _key(digest)
        path = self.root / key
        if not _touched(path):
            self._write(path, zstandard.compress(data) if compressed else data)
            if self._load(path, compressed=compressed) != data:
                raise BlobMissing(f"blob {digest} did not survive its write")
        return fresh(
            Blob,
            id=f"sha256:{digest}",
            sha256=digest,
            size=len(data),
            media_type=media_type,
            compression="zstd" if compressed else None,
            key=key,
            created_at=now_ms(),
        )

    def put_json(self, value: Any) -> Blob:
        """`put` of the canonical spelling of `value`."""
        return self.put(canonical(value), "application/json")

    def read(self, blob_id: str) -> bytes:
        """The bytes, verified against their name."""
        digest = blob_id.removeprefix("sha256:")
        path = self.root / _key(digest)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BlobMissing(f"blob {blob_id} is gone") from error
        if sha256(raw) == digest:
            return raw
        try:
            data = zstandard.decompress(raw)
        except zstandard.ZstdError as error:
            raise BlobMissing(f"blob {blob_id} is damaged") from error
        if sha256(data) != digest:
            raise BlobMissing(f"blob {blob_id} is damaged")
        return data

    def read_json(self, blob_id: str) -> Any:
        """The value that `put_json` stored."""
        return json.loads(self.read(blob_id))

    def exists(self, blob_id: str) -> bool:
        """Whether the bytes are there; `read` also verifies them."""
        return (self.root / _key(blob_id.removeprefix("sha256:"))).exists()

    def damaged(self, blob_id: str) -> bool:
        """Whether the bytes are gone or do not match their name."""
        try:
            self.read(blob_id)
        except BlobMissing:
            return True
        return False

    def path_of(self, blob_id: str) -> Path:
        """Where the bytes lie, if they do."""
        return self.root / _key(blob_id.removeprefix("sha256:"))

    def _write(self, path: Path, raw: bytes) -> None:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            self._make_folder(path.parent)
            self._write_draft(draft, raw)
            draft.rename(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            if (trouble := unwritable_file(error)) is not None:
                raise trouble from error
            raise

    def _write_draft(self, draft: Path, raw: bytes) -> None:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())

    def _make_folder(self, folder: Path) -> None:
        # One by one: of several, mkdir gives the mode to the last alone.
        if not folder.is_dir():
            if folder != self.root:
                self._make_folder(folder.parent)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _load(self, path: Path, *, compressed: bool) -> bytes:
        raw = path.read_bytes()
        return zstandard.decompress(raw) if compressed else raw


def commit(db: Db, blob: Blob) -> str:
    """Commit the row of a blob whose bytes are verified; answers its id."""
    insert_once(db, Blob, blob.model_dump())
    return blob.id


def row(db: Db, blob_id: str) -> Blob | None:
    """The committed fact about a blob."""
    return find_row(db, Blob, blob_id)


def _touched(path: Path) -> bool:
    """Whether the file is there; it is young again, so that nobody takes it for an orphan."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _key(digest: str) -> str:
    return f"sha256/{digest[:2]}/{digest[2:4]}/{digest}"
