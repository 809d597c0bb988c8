"""Places of the kernel are known by their path and by what is mounted there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.folders import kernel_places
from holdfast.folders.confined import confined
from holdfast.folders.kernel_places import Mount, below, is_of_kernel


@pytest.mark.parametrize("path", ["/proc", "/proc/sys/kernel", "/sys/kernel", "/dev/shm"])
def test_a_place_of_the_kernel_is_refused_to_tools_and_snapshots(path: str) -> None:
    assert is_of_kernel(Path(path))
    with pytest.raises(PermissionError, match="is a place of the kernel"), confined(path):
        pass


def test_a_folder_on_a_disk_is_not_of_the_kernel(tmp_path: Path) -> None:
    assert not is_of_kernel(tmp_path)
    assert not is_of_kernel(tmp_path / "missing")


def test_a_place_of_the_kernel_is_known_by_its_descriptor_whatever_it_is_called() -> None:
    descriptor = os.open("/proc/sys", os.O_PATH)
    try:
        assert is_of_kernel(Path("/srv/folder"), descriptor)
    finally:
        os.close(descriptor)


def test_a_mount_below_is_found_by_its_real_name(monkeypatch: pytest.MonkeyPatch) -> None:
    line = rb"60 59 0:5 / /srv/a\040b/\303\251/proc rw,nosuid shared:1 - proc proc rw"
    found = kernel_places._mount(line)
    assert found == Mount(60, Path("/srv/a b/é/proc"), "proc")
    monkeypatch.setattr(kernel_places, "mounts", lambda: [found])
    assert below([Path("/home"), Path("/srv/a b")]) == found
    assert below([Path("/srv/a")]) is None
