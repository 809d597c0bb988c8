"""Blobs as files in a folder, each written to a draft, synced and renamed into its place."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote_to_bytes, urlsplit

import zstandard

from holdfast.domain.canonical import sha256
from holdfast.domain.clock import now_ms
from holdfast.storage.database.blobs import BlobDamaged, BlobMissing, BlobStore, StoredBlob
from holdfast.storage.database.rows import fresh
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.database.trouble import StoreRefused, unwritable_file

COMPRESS_FROM_BYTES = 256
DIGEST = re.compile(r"[0-9a-f]{64}")


class FileBlobStore(BlobStore):
    """The folder of a `file://` URL; it is made, for its owner only, by the first put."""

    def __init__(self, url: str) -> None:
        self._root = _folder(url)

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> Blob:
        """A file that is there already is touched, not written again."""
        digest = sha256(data)
        compressed = len(data) >= COMPRESS_FROM_BYTES
        key = blob_key(digest)
        path = self._root / key
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

    def open(self, blob_id: str) -> BinaryIO:
        """The whole file is read and verified first."""
        digest = blob_id.removeprefix("sha256:")
        try:
            raw = self._path(blob_id).read_bytes()
        except OSError as error:
            raise BlobMissing(f"blob {blob_id} is gone") from error
        data = decoded(raw, digest)
        if data is None:
            raise BlobDamaged(f"blob {blob_id} is damaged")
        return BytesIO(data)

    def exists(self, blob_id: str) -> bool:
        """Whether there is a file of that name."""
        with suppress(BlobMissing):
            return self._path(blob_id).exists()
        return False

    def list(self) -> Iterator[StoredBlob]:
        """One folder at a time; a file that goes away meanwhile is left out."""
        for path, facts in self._files():
            if DIGEST.fullmatch(path.name):
                yield StoredBlob(f"sha256:{path.name}", facts.st_size, facts.st_mtime)

    def delete(self, blob_id: str, *, before_s: float) -> bool:
        """The time of a file is that of its last put."""
        try:
            path = self._path(blob_id)
            if path.stat().st_mtime >= before_s:
                return False
            path.unlink()
        except (BlobMissing, FileNotFoundError):
            return False
        return True

    def delete_drafts(self, *, before_s: float) -> int:
        """Whatever has no name of a blob is a draft."""
        drafts = [
            path
            for path, facts in self._files()
            if not DIGEST.fullmatch(path.name) and facts.st_mtime < before_s
        ]
        for path in drafts:
            path.unlink(missing_ok=True)
        return len(drafts)

    def _path(self, blob_id: str) -> Path:
        digest = blob_id.removeprefix("sha256:")
        if not DIGEST.fullmatch(digest):
            # An imported row may name anything: never a file outside of the folder.
            raise BlobMissing(f"blob {blob_id} is gone")
        return self._root / blob_key(digest)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._root.glob("sha256/*/*/*"):
            try:
                yield path, path.stat()
            except OSError:
                continue  # it is gone already

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
            if folder != self._root:
                self._make_folder(folder.parent)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _load(self, path: Path, *, compressed: bool) -> bytes:
        raw = path.read_bytes()
        return zstandard.decompress(raw) if compressed else raw


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    is_folder = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not is_folder or parts.query or parts.fragment:
        raise StoreRefused(f"blobs are kept at file:///an/absolute/folder, not at {url}")
    return Path(os.fsdecode(unquote_to_bytes(parts.path)))


def _touched(path: Path) -> bool:
    """Whether the file is there; it is young again, so that nobody takes it for an orphan."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def decoded(raw: bytes, digest: str) -> bytes | None:
    """The bytes of this hash, stored as they are or compressed; None when they are not in there."""
    if sha256(raw) == digest:
        return raw
    try:
        data = zstandard.decompress(raw)
    except zstandard.ZstdError:
        return None
    return data if sha256(data) == digest else None


def blob_key(digest: str) -> str:
    """Where a blob lies below the root of its store."""
    return f"sha256/{digest[:2]}/{digest[2:4]}/{digest}"
