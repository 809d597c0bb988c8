"""Blobs as objects in a bucket: `s3://bucket/prefix`; keys, region and endpoint by AWS_* variables.

`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` and
`AWS_ENDPOINT_URL` (which may be http:// for a server of one's own) are read by the client library.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import zstandard

from holdfast.domain.canonical import sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Unavailable
from holdfast.storage.database.blobs import BlobDamaged, BlobMissing, BlobStore, StoredBlob
from holdfast.storage.database.file_blobs import COMPRESS_FROM_BYTES, DIGEST, blob_key, decoded
from holdfast.storage.database.rows import fresh
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.database.trouble import StoreRefused

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Store

T = TypeVar("T")
REQUEST_TIMEOUT = timedelta(seconds=5)
# What the client library does by itself about 5xx answers, and what we do about broken connections.
LIBRARY_RETRIES_MAX, LIBRARY_RETRY_S = 10, 6.0
BUDGET_S, PAUSE_MIN_S, PAUSE_MAX_S = 12.0, 0.1, 1.0
# Bytes that were stored this long ago are written again, so that the orphan sweep spares them.
REFRESH_AFTER = timedelta(minutes=10)
_random = Random()


class BlobsAway(Unavailable):
    """The object store does not answer; the same request may work later."""


class S3BlobStore(BlobStore):
    """Objects below a prefix. Nothing is a draft here: an object is there as a whole or not."""

    def __init__(self, url: str) -> None:
        self._store = _bucket(url)

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> Blob:
        """One request for new bytes. Its repeat may find what the first attempt had stored."""
        digest = sha256(data)
        compressed = len(data) >= COMPRESS_FROM_BYTES
        key = blob_key(digest)
        raw = zstandard.compress(data) if compressed else data
        _insist(lambda: self._create(key, raw, media_type))
        return fresh(
            Blob,
            id=f"sha256:{digest}",
            sha256=digest,
            size=len(data),
            media_type=media_type,
            compression="zstd" if compressed else None,
            store="s3",
            key=key,
            created_at=now_ms(),
        )

    def open(self, blob_id: str) -> BinaryIO:
        """The whole object is read and verified first."""
        key = _key_of(blob_id)
        try:
            raw = _insist(lambda: bytes(self._store.get(key).bytes()))
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {blob_id} is gone") from error
        data = decoded(raw, blob_id.removeprefix("sha256:"))
        if data is None:
            raise BlobDamaged(f"blob {blob_id} is damaged")
        return BytesIO(data)

    def exists(self, blob_id: str) -> bool:
        """Whether there is an object of that name."""
        with suppress(BlobMissing, FileNotFoundError):
            key = _key_of(blob_id)
            _insist(lambda: self._store.head(key))
            return True
        return False

    def list(self) -> Iterator[StoredBlob]:
        """A page of a thousand at a time."""
        pages = iter(self._store.list(prefix="sha256"))
        while (page := _insist(lambda: next(pages, None))) is not None:
            for found in page:
                name = found["path"].rpartition("/")[2]
                if DIGEST.fullmatch(name):
                    at = found["last_modified"].timestamp()
                    yield StoredBlob(f"sha256:{name}", found["size"], at)

    def delete(self, blob_id: str, *, before_s: float) -> bool:
        """The time of an object is that of its last put."""
        try:
            key = _key_of(blob_id)
            found = _insist(lambda: self._store.head(key))
        except (BlobMissing, FileNotFoundError):
            return False
        if found["last_modified"].timestamp() >= before_s:
            return False
        _insist(lambda: self._store.delete(key))
        return True

    def delete_drafts(self, *, before_s: float) -> int:
        """An interrupted put leaves nothing that is listed."""
        return 0

    def _create(self, key: str, raw: bytes, media_type: str) -> None:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an optional extra

        attributes = {"Content-Type": media_type}
        try:
            self._store.put(key, raw, mode="create", attributes=attributes, use_multipart=False)
        except FileNotFoundError as error:
            raise BlobsAway("the bucket of HOLDFAST_BLOBS_URL is not there") from error
        except AlreadyExistsError:
            found = self._store.head(key)
            is_old = datetime.now(UTC) - found["last_modified"] > REFRESH_AFTER
            # A size that differs is a damaged object: what is named by its bytes is mended by them.
            if is_old or found["size"] != len(raw):
                self._store.put(key, raw, attributes=attributes, use_multipart=False)


def _bucket(url: str) -> S3Store:
    parts = urlsplit(url)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc) or parts.query:
        raise StoreRefused(f"blobs are kept at s3://bucket/prefix, not at {url}")
    try:
        from obstore.store import S3Store  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise StoreRefused(
            "blobs in S3 need a library that is not installed: pip install 'holdfast[s3]'"
        ) from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    client: ClientConfig = {"timeout": REQUEST_TIMEOUT, "connect_timeout": timedelta(seconds=5)}
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        client_options=client,
        retry_config={
            "max_retries": LIBRARY_RETRIES_MAX,
            "retry_timeout": timedelta(seconds=LIBRARY_RETRY_S),
            "backoff": {
                "base": 2,
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=PAUSE_MAX_S),
            },
        },
        **options,
    )


def _insist(request: Callable[[], T]) -> T:
    """The answer of a request that may be repeated; BlobsAway when none came for some seconds.

    The library does not repeat a conditional put whose connection broke: the first one may have
    been taken. For bytes under their own hash that makes no difference.
    """
    from obstore.exceptions import GenericError  # noqa: PLC0415 - an optional extra

    deadline = time.monotonic() + BUDGET_S
    pause_s = PAUSE_MIN_S
    while True:
        try:
            return request()
        except GenericError as error:
            if time.monotonic() + pause_s > deadline:
                raise BlobsAway("the blob store does not answer; try again") from error
        time.sleep(_random.uniform(PAUSE_MIN_S, pause_s))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _key_of(blob_id: str) -> str:
    digest = blob_id.removeprefix("sha256:")
    if not DIGEST.fullmatch(digest):
        raise BlobMissing(f"blob {blob_id} is gone")
    return blob_key(digest)
