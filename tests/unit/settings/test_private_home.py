"""A home that others could look into is closed to them, and nothing else is."""

from __future__ import annotations

import stat
from pathlib import Path

from holdfast.settings.private_home import tighten


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_ours_in_a_loose_home_is_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "blobs" / "ab").mkdir(parents=True)
    kept = [home / "holdfast.sqlite", home / "config.toml", home / "blobs" / "ab" / "cd"]
    for path in kept:
        path.touch(mode=0o664)
        path.chmod(0o664)
    for folder in (home, home / "blobs", home / "blobs" / "ab"):
        folder.chmod(0o755)
    assert tighten(home) == 6
    assert [mode(path) for path in kept] == [0o600] * 3
    assert [mode(path) for path in (home, home / "blobs" / "ab")] == [0o700] * 2
    assert tighten(home) == 0


def test_files_of_somebody_elses_and_what_links_name_stay_as_they_are(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir(mode=0o700)
    outside.touch()
    outside.chmod(0o644)
    (home / "diary.txt").touch()
    (home / "diary.txt").chmod(0o644)
    (home / "logs").symlink_to(tmp_path)
    (home / "token").symlink_to(outside)
    assert tighten(home) == 0
    assert (mode(outside), mode(home / "diary.txt")) == (0o644, 0o644)
