"""`holdfast selftest --fleet` itself: a fleet under a few faults passes and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.selftest.fleet import services

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


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
