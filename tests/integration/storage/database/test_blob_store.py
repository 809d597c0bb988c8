"""The blob store: bytes by their hash, written once, verified whenever they are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.domain.canonical import sha256
from holdfast.storage.database import blobs
from holdfast.storage.database.blobs import BlobFolder, BlobMissing
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.trouble import StoreUnwritable


@pytest.mark.req("F-015", "F-017", "F-018")
@pytest.mark.parametrize("data", [b"", b"small", b"large " * 1000, bytes(range(256)) * 10])
def test_a_blob_is_named_by_its_bytes_and_read_back(sqlite_store: OpenStore, data: bytes) -> None:
    folder = sqlite_store.blobs
    blob = folder.put(data, "text/plain")
    sqlite_store.write(lambda db: blobs.commit(db, blob))
    assert blob.id == f"sha256:{sha256(data)}"
    assert blob.key == f"sha256/{blob.sha256[:2]}/{blob.sha256[2:4]}/{blob.sha256}"
    assert (blob.size, blob.store) == (len(data), "file")
    assert folder.exists(blob.id)
    assert folder.read(blob.id) == data
    row = sqlite_store.read(lambda db: blobs.row(db, blob.id))
    assert row is not None
    assert row.media_type == "text/plain"


@pytest.mark.req("F-018", "F-025")
def test_equal_values_are_one_blob_whatever_their_order(sqlite_store: OpenStore) -> None:
    first = sqlite_store.blobs.put_json({"a": 1, "b": [2]})
    second = sqlite_store.blobs.put_json({"b": [2], "a": 1})
    assert first.id == second.id
    assert sqlite_store.blobs.read_json(first.id) == {"a": 1, "b": [2]}


@pytest.mark.req("F-018")
def test_changed_or_missing_bytes_are_never_handed_out(sqlite_store: OpenStore) -> None:
    folder = sqlite_store.blobs
    blob = folder.put(b"the truth " * 100)
    path = folder.root / blob.key
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(BlobMissing):
        folder.read(blob.id)
    assert folder.damaged(blob.id)
    path.unlink()
    with pytest.raises(BlobMissing):
        folder.read(blob.id)
    assert not folder.exists(blob.id)


@pytest.mark.req("F-025")
@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "the disk is read-only")],
)
def test_a_disk_that_takes_no_bytes_is_said_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    folder = BlobFolder(tmp_path / "blobs")

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreUnwritable, match=f"cannot write: {words}"):
            folder.put(b"some bytes")
    assert [path for path in folder.root.rglob("*") if path.is_file()] == []
    assert folder.read(folder.put(b"some bytes").id) == b"some bytes"
