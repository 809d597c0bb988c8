"""`holdfast selftest` itself: it ends with a verdict, a seed to repeat it, and a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [[], ["--no-kills"]], ids=["with kills", "without"])
def test_a_short_selftest_passes_and_says_so(tmp_path: Path, more: list[str]) -> None:
    report = tmp_path / "report.json"
    answer = subprocess.run(
        [HOLDFAST, "selftest", "--minutes", "0.5", "--seed", "7", "--report", str(report), *more],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    outcome = json.loads(report.read_text())
    assert outcome["findings"] == []
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "PASSED" in answer.stdout
    assert "--seed 7 --minutes 0.5" in answer.stdout
    assert outcome["seed"] == "7"
    assert outcome["acknowledged"]["message"] > 0
    assert bool(outcome["kills"]) == (more == [])


def test_the_help_says_what_it_does() -> None:
    answer = subprocess.run(
        [HOLDFAST, "selftest", "--help"], capture_output=True, text=True, timeout=120.0, check=True
    )
    assert "SIGKILL" in answer.stdout
    assert "--seed" in answer.stdout
