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


def test_the_newest_table_is_on_top_and_the_older_ones_are_folded() -> None:
    page = bench.with_newest("# Head\n", "## one\n\nrows\n")
    page = bench.with_newest(page, "## two\n\nrows\n")
    page = bench.with_newest(page, "## three\n\nrows\n")
    assert page.splitlines()[0] == "# Head"
    assert [page.index(part) for part in ("## three", "<details>", "## two", "## one")] == sorted(
        page.index(part) for part in ("## three", "<details>", "## two", "## one")
    )
    assert page.count("## ") == 3
    assert page.count("</details>") == 1
    assert page.endswith("</details>\n")


def test_the_page_of_benchmarks_is_short_above_its_history() -> None:
    above, fold, _ = bench.PAGE.read_text(encoding="utf-8").partition(bench.FOLD)
    assert fold
    assert len(above.splitlines()) <= 150


# Every number that an issue asks `make bench` for, by the beginning of its row.
ASKED_FOR = (
    *("start until ready, new home", "start until ready, used home"),
    *("message posted until it is running, p50", "first word at the client after", "16 sessions"),
    *(
        "run of three steps, p50",
        "append, batches of 100, 500k",
        "longest append of one batch, 500k",
    ),
    *(
        "socket delay p95, 50 clients",
        "clients with every frame once, in order",
        "API memory growth, last two thirds",
    ),
    *("echo of a key through the socket, p50", "echo of a key through the socket, p99"),
    *("flood of a terminal through the socket", "echo through the host, p99 during a flood"),
    *("memory the host gained", "fork of a session of 10,000", "growth of the store by that fork"),
    *("consistency check, deep, 100,000", "list of 20 of 10,000 sessions, 500k, p50"),
    *("all files for one message, 500k", "search, prefix, 500k, p95", "search, phrase, 500k, p95"),
)


@pytest.fixture(scope="module")
def measured() -> dict[str, list[str]]:
    """The newest row of each name on the page, as its cells."""
    lines = bench.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:2] == "| "]
    return {row[0]: row for row in reversed(rows) if len(row) == 6}  # the newest is on top


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_the_issues_ask_for_was_measured_and_its_noise_too(
    measured: dict[str, list[str]], name: str
) -> None:
    [row] = [row for title, row in measured.items() if title.startswith(name)]
    assert row[1], "a value"
    assert row[5], "how sure it is"
