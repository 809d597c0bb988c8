"""The benchmark's report: the middle of several runs, their noise, and parts that fail."""

from __future__ import annotations

import pytest

from tests.bench import __main__ as bench
from tests.bench.part import PARTS, Part
from tests.bench.row import Row, merge


def row(value: float, ratio: float, noise: str = "") -> Row:
    return Row("a thing", value, "ms", "raw", value / ratio, ratio, "< 9", noise)


def test_several_runs_give_the_middle_and_how_far_apart_they_lie() -> None:
    [found] = merge([[row(4.0, 2.0)], [row(9.0, 3.0)], [row(5.0, 5.0)]])
    assert (found.value, found.ratio, found.noise) == (5.0, 3.0, "3 runs: 4 to 9")


def test_the_noise_inside_a_run_is_kept() -> None:
    [found] = merge([[row(4.0, 2.0, "±3 %")], [row(6.0, 2.0, "±4 %")]])
    assert found.noise == "±4 %; 2 runs: 4 to 6"


def test_a_single_run_says_so() -> None:
    assert [found.noise for found in merge([[row(4.0, 2.0)]])] == ["one run"]


def test_a_part_that_fails_says_why_and_has_no_rows() -> None:
    rows, trouble = Part("no_such_module").run()
    assert rows == []
    assert "no_such_module" in str(trouble)


def test_the_other_parts_are_reported_when_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = iter([([], "it broke"), ([row(1.0, 1.0)], None)])
    monkeypatch.setattr(bench, "TINY", True)
    monkeypatch.setattr(bench, "PARTS", PARTS[:2])
    monkeypatch.setattr(Part, "run", lambda _part: next(outcomes))
    assert bench.main([]) == 1
    said = capsys.readouterr().out
    assert "| a thing | 1 ms |" in said
    assert f"Failed: {PARTS[0].name}, run 1 of 1: it broke" in said
