"""Blob stores: payloads by their hash, and the rows of those that are committed.

Canonicalise, hash, write, verify, and only then commit the row. Where and how the bytes lie is
known to the store alone; `opening.SCHEMES` lists the kinds of stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from holdfast.domain.canonical import canonical
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables_history import Blob


class BlobMissing(Exception):
    """The bytes of a committed blob are not there; on a shared folder they may be on their way."""


class BlobDamaged(BlobMissing):
    """There are other bytes under the blob's name."""


@dataclass(frozen=True)
class StoredBlob:
    """A blob as its store lists it; `size` is what it takes there, `stored_at_s` its last put."""

    id: str
    size: int
    stored_at_s: float


class BlobStore(Protocol):
    """The bytes. A blob that no row names is an orphan, never a dangling fact."""

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> Blob:
        """Write `data` once and verify it; commit the row it answers with `commit`.

        Bytes that are there already count as stored now: the orphan sweep must not take them.
        """

    def open(self, blob_id: str) -> BinaryIO:
        """A stream of the bytes, verified before the first one is handed out, or BlobMissing."""

    def exists(self, blob_id: str) -> bool:
        """Whether the bytes are there; `open` also verifies them."""

    def list(self) -> Iterator[StoredBlob]:
        """Every blob, in no order, a few at a time in memory."""

    def delete(self, blob_id: str, *, before_s: float) -> bool:
        """Remove bytes whose last put was before that time; whether they were there and went."""

    def delete_drafts(self, *, before_s: float) -> int:
        """Remove what interrupted puts left behind before that time; how many."""

    def size(self) -> int:
        """How many bytes all blobs take in the store."""
        return sum(blob.size for blob in self.list())

    def read(self, blob_id: str) -> bytes:
        """All bytes at once, verified."""
        with self.open(blob_id) as stream:
            return stream.read()

    def put_json(self, value: Any) -> Blob:
        """`put` of the canonical spelling of `value`."""
        return self.put(canonical(value), "application/json")

    def read_json(self, blob_id: str) -> Any:
        """The value that `put_json` stored."""
        return json.loads(self.read(blob_id))

    def damaged(self, blob_id: str) -> bool:
        """Whether the bytes are gone or do not match their name."""
        try:
            self.open(blob_id).close()
        except BlobMissing:
            return True
        return False


def commit(db: Db, blob: Blob) -> str:
    """Commit the row of a blob whose bytes are verified; answers its id."""
    insert_once(db, Blob, blob.model_dump())
    return blob.id
