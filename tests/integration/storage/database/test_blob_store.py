"""The contract of a blob store, held by every kind there is: bytes by their hash, verified."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.canonical import sha256
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.blobs import BlobMissing, BlobStore
from holdfast.storage.database.opening import SCHEMES, OpenStore
from tests.support.blob_files import FileHarness
from tests.support.servers.object_store import ObjectStore, S3Harness
from tests.support.stored_rows import blob_row

# A kind of store without a harness fails every test here.
Harness = FileHarness | S3Harness
HARNESSES: dict[str, type[Harness]] = {"file": FileHarness, "s3": S3Harness}
HOUR_S = 3_600.0


@pytest.fixture(params=sorted(SCHEMES))
def scheme(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn."""
    return str(request.param)


@pytest.fixture
def harness(scheme: str, request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    """What is behind the store, to be broken."""
    kind = HARNESSES[scheme]
    if issubclass(kind, FileHarness):
        return kind(tmp_path / "blobs")
    server: ObjectStore = request.getfixturevalue("object_store")
    return kind(server)


@pytest.fixture
def blobs(scheme: str, harness: Harness) -> BlobStore:
    """A fresh store."""
    return SCHEMES[scheme](harness.url)


@pytest.mark.req("F-015", "F-017", "F-018")
@pytest.mark.parametrize("data", [b"", b"small", b"large " * 1000, bytes(range(256)) * 10])
def test_a_blob_is_named_by_its_bytes_and_read_back(
    scheme: str, blobs: BlobStore, sqlite_store: OpenStore, data: bytes
) -> None:
    blob = blobs.put(data, "text/plain")
    sqlite_store.write(lambda db: blob_rows.commit(db, blob))
    assert blob.id == f"sha256:{sha256(data)}"
    assert blob.key == f"sha256/{blob.sha256[:2]}/{blob.sha256[2:4]}/{blob.sha256}"
    assert (blob.size, blob.store) == (len(data), scheme)
    assert blobs.exists(blob.id)
    assert blobs.read(blob.id) == data
    row = sqlite_store.read(lambda db: blob_row(db, blob.id))
    assert row is not None
    assert row.media_type == "text/plain"


@pytest.mark.req("F-018", "F-025")
def test_equal_values_are_one_blob_whatever_their_order(blobs: BlobStore) -> None:
    first = blobs.put_json({"a": 1, "b": [2]})
    second = blobs.put_json({"b": [2], "a": 1})
    assert first.id == second.id
    assert blobs.read_json(first.id) == {"a": 1, "b": [2]}
    assert [blob.id for blob in blobs.list()] == [first.id]


@pytest.mark.req("F-018")
@pytest.mark.parametrize("data", [b"small", b"the truth " * 100])
def test_changed_or_missing_bytes_are_never_handed_out(
    blobs: BlobStore, harness: Harness, data: bytes
) -> None:
    blob, others = blobs.put(data), blobs.put(b"another " * 100)
    assert not blobs.damaged(blob.id)
    for raw in (harness.raw(blob.id)[:-2], harness.raw(others.id), b""):
        harness.damage(blob.id, raw)
        with pytest.raises(BlobMissing, match="damaged"):
            blobs.open(blob.id)
        with pytest.raises(BlobMissing, match="damaged"):
            blobs.read(blob.id)
        assert blobs.damaged(blob.id)
        assert blobs.exists(blob.id)
    harness.lose(blob.id)
    with pytest.raises(BlobMissing, match="gone"):
        blobs.read(blob.id)
    assert blobs.damaged(blob.id)
    assert not blobs.exists(blob.id)


def test_a_blob_is_read_as_a_stream(blobs: BlobStore) -> None:
    blob = blobs.put(b"0123456789" * 1000)
    with blobs.open(blob.id) as stream:
        assert stream.read(12) == b"012345678901"
        assert len(stream.read()) == 9988


@pytest.mark.req("F-019")
def test_a_store_lists_every_blob_with_its_size_and_time(
    blobs: BlobStore, harness: Harness
) -> None:
    assert (list(blobs.list()), blobs.size()) == ([], 0)
    before = time.time() - 1.0
    made = [blobs.put(f"blob {number} ".encode() * 100).id for number in range(20)]
    listed = blobs.list()
    assert isinstance(listed, Iterator)
    found = {blob.id: blob for blob in listed}
    assert sorted(found) == sorted(made)
    for blob in found.values():
        assert blob.size == len(harness.raw(blob.id))
        assert before < blob.stored_at_s <= time.time()
    assert blobs.size() == sum(blob.size for blob in found.values())
    harness.age(made[0], hours=2)
    aged = next(blob for blob in blobs.list() if blob.id == made[0])
    assert aged.stored_at_s == pytest.approx(time.time() - 2 * HOUR_S, abs=60.0)


@pytest.mark.req("F-019")
def test_a_blob_is_deleted_unless_it_was_stored_again(blobs: BlobStore, harness: Harness) -> None:
    blob_id = blobs.put(b"bytes").id
    an_hour_ago = time.time() - HOUR_S
    assert not blobs.delete(blob_id, before_s=an_hour_ago)
    harness.age(blob_id, hours=2)
    assert blobs.put(b"bytes").id == blob_id
    assert not blobs.delete(blob_id, before_s=an_hour_ago)
    assert blobs.read(blob_id) == b"bytes"
    harness.age(blob_id, hours=2)
    assert blobs.delete(blob_id, before_s=an_hour_ago)
    assert not blobs.exists(blob_id)
    assert not blobs.delete(blob_id, before_s=an_hour_ago)
    assert blobs.put(b"bytes").id == blob_id
    assert blobs.read(blob_id) == b"bytes"


@pytest.mark.req("F-019", "F-025")
def test_drafts_of_killed_puts_are_no_blobs_and_go_when_they_are_old(
    blobs: BlobStore, harness: Harness
) -> None:
    if isinstance(harness, S3Harness):
        pytest.skip("an object is there as a whole or not")
    blob_id = blobs.put(b"bytes").id
    harness.age(blob_id, hours=2)
    harness.leave_draft(blob_id, hours=0)
    assert [blob.id for blob in blobs.list()] == [blob_id]
    assert blobs.delete_drafts(before_s=time.time() - HOUR_S) == 0
    harness.leave_draft(blob_id, hours=2)
    assert blobs.delete_drafts(before_s=time.time() - HOUR_S) == 1
    assert blobs.delete_drafts(before_s=time.time() - HOUR_S) == 0
    assert blobs.read(blob_id) == b"bytes"


@pytest.mark.req("F-018")
def test_a_name_that_is_no_blobs_reaches_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    blobs.put(b"bytes")
    for name in ("", "sha256:", "secret", f"sha256:{secret}", "sha256:../../../../secret"):
        assert not blobs.exists(name)
        assert not blobs.delete(name, before_s=time.time() + HOUR_S)
        with pytest.raises(BlobMissing, match="gone"):
            blobs.read(name)
    assert secret.exists()


def test_another_process_finds_the_same_blobs(
    scheme: str, blobs: BlobStore, harness: Harness
) -> None:
    blob_id = blobs.put(b"bytes").id
    assert SCHEMES[scheme](harness.url).read(blob_id) == b"bytes"


def test_a_store_shows_nothing_beyond_the_contract(blobs: BlobStore) -> None:
    blobs.put(b"bytes")
    shown = {name for name in dir(blobs) if not name.startswith("_")}
    assert shown == {name for name in vars(BlobStore) if not name.startswith("_")}
