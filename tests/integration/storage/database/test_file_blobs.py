"""Blobs as files: their modes, a disk that takes nothing, and the folder of a URL."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.file_blobs import FileBlobStore
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.trouble import StoreRefused, StoreUnwritable


@pytest.mark.req("F-025")
@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "the disk is read-only")],
)
def test_a_disk_that_takes_no_bytes_is_said_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    folder = tmp_path / "blobs"
    blobs = FileBlobStore(folder.as_uri())

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreUnwritable, match=f"cannot write: {words}"):
            blobs.put(b"some bytes")
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert blobs.read(blobs.put(b"some bytes").id) == b"some bytes"


@pytest.mark.req("F-025")
def test_bytes_that_the_disk_changed_are_no_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobStore((tmp_path / "blobs").as_uri())
    whole = FileBlobStore._write
    monkeypatch.setattr(
        FileBlobStore, "_write", lambda self, path, raw: whole(self, path, raw[:-1] + b"?")
    )
    with pytest.raises(BlobMissing, match="did not survive"):
        blobs.put(b"some bytes")


def test_folders_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    FileBlobStore(folder.as_uri()).put(b"some bytes")
    made = [folder, *folder.rglob("*")]
    assert len(made) == 5
    assert [path for path in made if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize(
    "name", ["plain", "a b#c?d%41", "grün", b"\xff".decode("utf-8", "surrogateescape")]
)
def test_a_url_names_any_folder(tmp_path: Path, name: str) -> None:
    FileBlobStore((tmp_path / name).as_uri()).put(b"some bytes")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_blobs_lie_in_the_home_unless_a_url_says_where(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    with_url = open_store(None, home, blobs_url=elsewhere.as_uri(), synchronous="OFF")
    blob_id = with_url.blobs.put(b"some bytes").id
    with_url.close()
    assert elsewhere.is_dir()
    assert not (home / "blobs").exists()
    without = open_store(None, home, synchronous="OFF")
    assert not without.blobs.exists(blob_id)
    without.blobs.put(b"some bytes")
    without.close()
    assert (home / "blobs").is_dir()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gs://bucket/prefix", "must begin with file://, s3://, not with gs"),
        ("/srv/blobs", "must begin with file://"),
        ("s3://", "s3://bucket/prefix"),
        ("s3://Bucket_/x?y", "s3://bucket/prefix"),
        ("file://server/share", "file:///an/absolute/folder"),
        ("file://", "file:///an/absolute/folder"),
        ("file:///srv/blobs?x=1", "file:///an/absolute/folder"),
    ],
)
def test_a_url_that_no_store_can_serve_is_refused_in_words(
    tmp_path: Path, url: str, words: str
) -> None:
    with pytest.raises(StoreRefused, match=words):
        OpenStore("sqlite://", tmp_path, blobs_url=url)
