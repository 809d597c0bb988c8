"""`make attack` plays what is there: every file that it names, and every test about attackers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def named() -> list[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"^ATTACKS := (.*)$", text, re.MULTILINE)
    assert found is not None
    return found.group(1).split()


def test_every_named_place_of_attacks_exists() -> None:
    assert [path for path in named() if not (ROOT / path).exists()] == []


def test_every_test_with_an_attacker_is_among_the_attacks() -> None:
    command = ["git", "grep", "-l", "tests.support.attackers", "--", "tests"]
    users = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tests = [one for one in users.stdout.split() if Path(one).name.startswith("test_")]
    assert tests
    missing = [one for one in tests if not any(one.startswith(place) for place in named())]
    assert [one for one in missing if one != "tests/unit/repository/test_attacks.py"] == []
