"""Files of other people's folders: whatever lies there, the reader is not held up."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast.folders import reading
from holdfast.folders.reading import read_below, read_regular


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to open: by the kernel's own call, and folder by folder where it is missing."""
    if request.param == "walk":
        monkeypatch.setattr(reading, "available", lambda: False)
    return str(request.param)


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"x" * 3_000_000)
    assert read_below(tmp_path, "in/file", limit=4_000_000) == b"x" * 3_000_000
    assert read_below(tmp_path, "in/file", limit=10) == b"x" * 10
    assert read_regular(tmp_path / "in" / "file", limit=10) == b"x" * 10


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("only root makes devices")
    with pytest.raises(OSError, match="not a regular file"):
        read_below(tmp_path, "odd", limit=10)


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "/dev/zero"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text("hush")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(target)
    with pytest.raises(OSError, match="a link in its path leads out"):
        read_below(folder, "link", limit=10)


def test_a_folder_that_is_a_link_leading_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("hush")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in").symlink_to("../outside")
    with pytest.raises(OSError, match=r"leads out|Not a directory"):
        read_below(tmp_path / "folder", "in/file", limit=10)


def test_a_link_that_stays_inside_is_followed_by_the_kernel(tmp_path: Path, way: str) -> None:
    (tmp_path / "real").write_text("here")
    (tmp_path / "link").symlink_to("real")
    if way == "walk":
        with pytest.raises(OSError, match="leads out"):
            read_below(tmp_path, "link", limit=10)
    else:
        assert read_below(tmp_path, "link", limit=10) == b"here"


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_below(tmp_path, "none/such", limit=10)
