"""`holdfast selftest` itself: it ends with a verdict, a seed to repeat it, and a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.selftest.fleet import services

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_selftest_of_a_fleet_passes_and_says_so(tmp_path: Path) -> None:
    try:
        services.binaries()
    except services.FleetUnavailable as error:
        pytest.skip(str(error))
    report = tmp_path / "report.json"
    options = ["--fleet", "--minutes", "0.75", "--seed", "7", "--report", str(report)]
    answer = subprocess.run(
        [HOLDFAST, "selftest", *options], capture_output=True, text=True, timeout=880, check=False
    )
    outcome = json.loads(report.read_text())
    assert outcome["findings"] == []
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "3 hosts, 2 APIs" in outcome["fleet"]
    assert sum(outcome["kills"].values()) > 0
    assert outcome["shell_commands"] > 0
    assert "PASSED" in answer.stdout
    assert "holdfast selftest --fleet --seed 7" in answer.stdout
