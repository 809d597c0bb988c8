"""Folders by descriptor: links that stay inside are followed, those that leave are refused."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.folders import opened
from holdfast.folders.openat2 import available
from holdfast.folders.opened import identity, open_below, open_root


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(opened, "available", lambda: False)
    elif not available():
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path, way: str) -> Iterator[int]:
    (tmp_path / "home" / "inner").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    descriptor = open_root(tmp_path / "home")
    yield descriptor
    os.close(descriptor)


def refusal(root: int, name: str) -> int | None:
    try:
        os.close(open_below(root, name))
    except OSError as error:
        return error.errno
    return None


def test_a_folder_inside_is_opened(root: int, tmp_path: Path) -> None:
    inner = open_below(root, "inner")
    status = (tmp_path / "home" / "inner").stat()
    assert identity(inner) == (status.st_dev, status.st_ino)
    os.close(inner)


@pytest.mark.parametrize("name", ["..", "inner/../..", "/etc", "../secret"])
def test_a_name_that_leads_out_is_refused(root: int, name: str) -> None:
    assert refusal(root, name) == errno.EXDEV


def test_a_link_that_leads_out_is_refused(root: int, tmp_path: Path) -> None:
    (tmp_path / "home" / "out").symlink_to(tmp_path / "secret")
    assert refusal(root, "out") is not None


def test_a_link_inside_is_followed_where_the_kernel_judges_it(
    root: int, tmp_path: Path, way: str
) -> None:
    (tmp_path / "home" / "again").symlink_to("inner")
    assert (refusal(root, "again") is None) == (way == "openat2")


def test_a_root_whose_path_became_a_link_is_refused(way: str, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError):  # noqa: PT011 - ELOOP or ENOTDIR, by the way it is opened
        os.close(open_root(tmp_path / "home"))


def test_a_swapped_folder_is_never_followed_outside(root: int, tmp_path: Path) -> None:
    inner = tmp_path / "home" / "inner"
    secret = os.stat(tmp_path / "secret")  # noqa: PTH116
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            inner.rename(tmp_path / "home" / "away")
            inner.symlink_to(tmp_path / "secret")
            inner.unlink()
            (tmp_path / "home" / "away").rename(inner)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(3000):
            try:
                found = open_below(root, "inner")
            except OSError:
                continue
            assert identity(found) != (secret.st_dev, secret.st_ino)
            os.close(found)
    finally:
        over.set()
        swapper.join()
