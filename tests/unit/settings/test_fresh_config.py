"""The configuration of now: a written file counts at the next look, a broken one never."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.settings.environment import SettingsError
from holdfast.settings.fresh_config import FreshConfig


def write(home: Path, text: str) -> None:
    """Write the file; its time moves even where the clock is coarse."""
    path = home / "config.toml"
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def test_a_written_file_counts_and_a_broken_one_leaves_the_last_good_one(tmp_path: Path) -> None:
    config = FreshConfig(tmp_path)
    assert "one" not in config().aliases
    write(tmp_path, '[aliases]\none = "scripted:echo"\n')
    assert "one" in config().aliases
    write(tmp_path, "[aliases")
    assert "one" in config().aliases
    write(tmp_path, "")
    assert "one" not in config().aliases


def test_a_file_that_is_broken_at_the_start_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "nonsense = 1\n")
    with pytest.raises(SettingsError):
        FreshConfig(tmp_path)
