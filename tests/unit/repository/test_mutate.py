"""The systematic mutation tester: what it edits, and which edits it calls survivors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import mutate, mutations

SOURCE = '''"""A sample."""
LIMIT = 3


def is_full(count: int) -> bool:
    """Whether no more fit."""
    return count >= LIMIT
'''
WEAK = "def test_full() -> None:\n    assert is_full(9) and not is_full(1)\n"
STRONG = "def test_full() -> None:\n    assert is_full(3) and not is_full(2)\n"
DRIVER = """
import sys
from pathlib import Path
from scripts import mutate
root = Path.cwd()
chosen = mutate.generate(["sample.py"], root)
verdicts = mutate.Verdicts({}, len(chosen))
with mutate._quiet():
    mutate.try_all(chosen, verdicts, root=root, tests=["test_sample.py"])
for mutant, verdict in verdicts.given:
    print(f"{verdict}: {mutant.mutation}")
"""


def verdicts_of(folder: Path, test: str) -> set[str]:
    (folder / "sample.py").write_text(SOURCE)
    (folder / "test_sample.py").write_text(f"from sample import is_full\n\n\n{test}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    bench\ntimeout = 0\n")
    environment = {"PYTHONPATH": f"{mutate.ROOT}:{folder}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.splitlines())


def test_an_edit_that_a_weak_test_misses_survives(tmp_path: Path) -> None:
    told = verdicts_of(tmp_path, WEAK)
    assert "survived: count >= LIMIT → count > LIMIT" in told
    assert "survived: 3 → 4" in told
    assert "killed: delete: return count >= LIMIT" in told


def test_a_strong_test_kills_every_edit(tmp_path: Path) -> None:
    told = verdicts_of(tmp_path, STRONG)
    assert told == {
        "killed: count >= LIMIT → count > LIMIT",
        "killed: 3 → 4",
        "killed: delete: return count >= LIMIT",
    }


def test_every_edit_of_the_domain_compiles() -> None:
    for file in sorted((mutate.ROOT / "holdfast" / "domain").glob("*.py")):
        for mutant in mutations.mutants_of(file, mutate.ROOT):
            mutant.compiled(mutate.ROOT)


def test_an_equivalent_mutant_needs_a_reason(tmp_path: Path) -> None:
    (tmp_path / "equivalent.txt").write_text("a.py :: f :: 1 → 2 :: \n")
    with pytest.raises(ValueError, match="why"):
        mutate.read_equivalent(tmp_path / "equivalent.txt")


def test_every_listed_mutant_exists() -> None:
    listed = mutate.read_equivalent()
    files = sorted({file for file, _, _ in listed})
    assert set(listed) <= {mutant.key for mutant in mutate.generate(files)}
