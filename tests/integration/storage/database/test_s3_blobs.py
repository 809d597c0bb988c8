"""Blobs in a bucket whose server has bad days: 503 for a while, lost answers, no bucket."""

from __future__ import annotations

import threading

import pytest

from holdfast.domain.errors import Unavailable
from holdfast.storage.database import s3_blobs
from holdfast.storage.database.s3_blobs import S3BlobStore
from tests.support.servers.object_store import ObjectStore, S3Harness
from tests.support.waiting import wait_for


@pytest.fixture
def harness(object_store: ObjectStore) -> S3Harness:
    return S3Harness(object_store)


def puts(server: ObjectStore) -> int:
    return sum(one.startswith("PUT") for one in server.requests)


def test_a_server_that_answers_503_for_seconds_is_waited_for(
    harness: S3Harness, object_store: ObjectStore
) -> None:
    blobs = S3BlobStore(harness.url)
    object_store.unavailable.set()

    def mend() -> None:
        wait_for(lambda: puts(object_store) >= 3, "three attempts")
        object_store.unavailable.clear()

    mending = threading.Thread(target=mend)
    mending.start()
    blob = blobs.put(b"kept " * 1000)
    mending.join()
    assert blobs.read(blob.id) == b"kept " * 1000


def test_a_server_that_answers_503_for_good_is_said_to_be_away(
    harness: S3Harness, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_blobs, "BUDGET_S", 0.5)
    monkeypatch.setattr(s3_blobs, "LIBRARY_RETRY_S", 0.5)
    blobs = S3BlobStore(harness.url)
    blob = blobs.put(b"bytes")
    object_store.unavailable.set()
    for attempt in (lambda: blobs.put(b"others"), lambda: blobs.read(blob.id)):
        with pytest.raises(Unavailable, match="blob store does not answer"):
            attempt()
    object_store.unavailable.clear()
    assert blobs.read(blob.id) == b"bytes"


def test_a_put_whose_answer_is_lost_is_made_again(
    harness: S3Harness, object_store: ObjectStore
) -> None:
    blobs = S3BlobStore(harness.url)
    object_store.lost = 1
    blob = blobs.put(b"bytes")
    assert puts(object_store) >= 2
    assert [one.id for one in blobs.list()] == [blob.id]
    assert blobs.read(blob.id) == b"bytes"


def test_a_bucket_that_is_not_there_is_said_in_words(object_store: ObjectStore) -> None:
    with pytest.raises(Unavailable, match="bucket"):
        S3BlobStore("s3://no-such-bucket/prefix").put(b"bytes")


def test_new_bytes_cost_one_request(harness: S3Harness, object_store: ObjectStore) -> None:
    blobs = S3BlobStore(harness.url)
    object_store.requests.clear()
    blobs.put(b"new")
    assert len(object_store.requests) == 1
