"""Blobs whose transaction failed are collected; those that a row names are not."""

from __future__ import annotations

import pytest

from holdfast.storage.database import blobs
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.upkeep.orphans import collect
from tests.support.blob_files import blob_file


@pytest.mark.req("F-019")
def test_only_old_files_without_a_row_go(sqlite_store: OpenStore) -> None:
    kept = sqlite_store.blobs.put(b"kept")
    sqlite_store.write(lambda db: blobs.commit(db, kept))
    orphan = sqlite_store.blobs.put(b"orphan")
    draft = blob_file(sqlite_store, orphan.id).with_name(".half-written")
    draft.write_bytes(b"half")
    assert collect(sqlite_store) == 0
    assert collect(sqlite_store, grace_s=0.0) == 2
    assert sqlite_store.blobs.exists(kept.id)
    assert not sqlite_store.blobs.exists(orphan.id)
    assert not draft.exists()
    assert sqlite_store.blobs.put(b"orphan").id == orphan.id
    assert sqlite_store.blobs.read(orphan.id) == b"orphan"
