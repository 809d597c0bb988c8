"""What a seed repeats, and what a person sees of a self-test: its bar, its verdict, its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands import torture
from holdfast.selftest import report, trial
from holdfast.selftest.driver import Driver
from holdfast.selftest.killer import PARTS, strike
from holdfast.selftest.record import Record
from tests.support.command_line import run_here

NUMBERS = range(60)


def choices(seed: str, *, number: int = 1, draws: int = 0) -> list[tuple[str, float]]:
    """The acts of one client, each with the first thing that it draws."""
    driver = Driver(number, Path(), "http://127.0.0.1:1", "token", Record(), seed)
    found = []
    for act in NUMBERS:
        chosen = driver.choose(act)
        found.append((chosen.__name__, driver.random.random()))
        for _ in range(draws):  # as an act does that met with trouble
            driver.random.random()
    driver.caller.close()
    return found


def test_a_seed_repeats_the_acts_of_a_client_whatever_became_of_them() -> None:
    assert choices("s1") == choices("s1", draws=7)
    assert choices("s1") != choices("s2")
    assert choices("s1", number=1) != choices("s1", number=2)


def test_every_act_has_its_turn() -> None:
    driver = Driver(0, Path(), "http://127.0.0.1:1", "token", Record(), "s")
    assert {name for name, _ in choices("s")} == {act.__name__ for act in driver.acts()}
    driver.caller.close()


def test_a_seed_repeats_the_kills_and_every_part_has_its_turn() -> None:
    struck = [strike("s1", number) for number in NUMBERS]
    assert struck == [strike("s1", number) for number in NUMBERS]
    assert struck != [strike("s2", number) for number in NUMBERS]
    assert {part for one in struck for part in one.parts} == set(PARTS)
    assert any(len(one.parts) > 1 for one in struck)
    assert {one.after_recovery for one in struck} == {True, False}


def test_the_bar_says_how_far_it_is() -> None:
    record = Record()
    for _ in range(3):
        record.kill("worker")
    record.acknowledge("message", "session", "id")
    assert report.progress(record, elapsed_s=30.0, total_s=120.0) == (
        "[#####---------------]   90 s left, 3 kills, 1 commands acknowledged"
    )
    assert report.progress(record, elapsed_s=999.0, total_s=120.0).startswith(f"[{'#' * 20}]    0")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_bar_is_one_line_on_a_terminal_and_a_line_now_and_then_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    shown = torture._Progress()
    for line in ("[#--] a", "[##-] b", "searching", "checking"):
        shown.show(line)
    said = capsys.readouterr().err
    if is_terminal:
        assert said.count("\n") == 0
        assert [piece.strip() for piece in said.split("\r")[1:]] == [
            *("[#--] a", "[##-] b", "searching", "checking")
        ]
    else:
        assert said.splitlines() == ["[#--] a", "searching", "checking"]


@pytest.fixture
def no_product(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Self-tests that end at once with a finding."""

    def run(self: trial.Trial, **_: Any) -> tuple[dict[str, Any], str]:
        self.product.clear(keep_home=False)
        self.record.find("message_lost", "wordx1 (01A)")
        found = self.record.findings
        return report.as_json(self.record, found, seed=self.seed, minutes=self.minutes), "home"

    monkeypatch.setattr(trial.Trial, "run", run)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_product")
@pytest.mark.parametrize("given", ["", "named.json"])
def test_a_report_is_written_whether_or_not_it_was_asked_for(given: str) -> None:
    options = ["--report", given] if given else []
    code, out, _ = run_here("selftest", "--seed", "a/7", "--minutes", "1", *options)
    path = given or "holdfast-selftest-a-7.json"
    assert code == 1
    assert "FAILED: 1 promises were not kept" in out
    assert f"Report: {path}" in out
    written = json.loads(Path(path).read_text())
    assert (written["verdict"], written["seed"]) == ("failed", "a/7")
    assert [one["kind"] for one in written["findings"]] == ["message_lost"]


@pytest.mark.usefixtures("no_product")
def test_a_report_that_cannot_be_written_is_said_before_anything_starts() -> None:
    code, out, err = run_here("selftest", "--report", "no/such/folder/report.json")
    assert code == 2
    assert "the report cannot be written" in out + err
