"""What a user installs: one package of ours beside the four rooms of Temporal, and all its data."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOP_LEVEL = {"holdfast", "workflows", "activities", "api", "worker"}
DATA = {
    "holdfast/py.typed",
    "holdfast/page/index.html",
    "holdfast/page/app.js",
    "holdfast/storage/database/migrations/script.py.mako",
    "holdfast/storage/database/migrations/versions/r0001_core.py",
    "holdfast/memory/embedders/vocabulary.txt.gz",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel that is built from the tracked files."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    command = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(built)]
    subprocess.run([sys.executable, "-m", *command, str(source)], check=True)
    [path] = built.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_nothing_generic_is_installed_on_top_level(wheel: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
    assert top == TOP_LEVEL


def test_the_wheel_carries_the_page_the_migrations_and_the_vocabulary(wheel: list[str]) -> None:
    assert set(wheel) >= DATA
