"""`make bench`: every measurement, one table, on top of docs/benchmarks.md.

Each part runs in a process of its own, three times: one that fails takes only its rows along.
Names of parts as arguments choose some of them; HOLDFAST_BENCH_TINY=1 only shows that they work
and writes nothing.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.part import PARTS, Part
from tests.bench.rounds import TINY
from tests.bench.row import Row, merge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
HEAD = """\
# Benchmarks

Written by `make bench`, newest first; older tables are folded away below. Each number is the middle
of the runs of its part, beside the raw limit measured in the same runs, where there is one. Noise
is the half-width of the middle half of the repeats inside a run, then the lowest and highest run.
"""
FOLD = "<details>\n<summary>Older measurements, newest first</summary>\n\n"
FOLD_END = "</details>\n"


def main(chosen: list[str]) -> int:
    """Measure, show, and keep; 1 when a part failed."""
    began, load = datetime.now(UTC), os.getloadavg()[0]
    rows: list[Row] = []
    failures: list[str] = []
    for part in PARTS:
        if not chosen or part.name in chosen or part.module in chosen:
            more, trouble = _repeat(part)
            rows += more
            failures += trouble
    report = table(rows) + "".join(f"\nFailed: {words}\n" for words in failures)
    sys.stdout.write(report)
    if not TINY:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
        newest = f"## {_heading(began, load)}\n\n{report}"
        PAGE.write_text(with_newest(before, newest), encoding="utf-8")
    return 1 if failures else 0


def with_newest(page: str, newest: str) -> str:
    """The page with this section on top; what was there is folded away."""
    opening, _, folded = page.partition(FOLD)
    head, begins, shown = opening.partition("\n## ")
    older = folded.removesuffix(FOLD_END)
    before = f"## {shown.strip()}\n\n" if begins else ""
    return f"{head}\n{newest}\n{FOLD}{before}{older}{FOLD_END}"


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | value | raw limit | ratio | goal | noise |", "|---|---|---|---|---|---|"]
    for row in rows:
        limit = f"{row.limit_name}: {_number(row.limit_value)}" if row.limit_name else ""
        ratio = f"{row.ratio:.2f} ×" if row.ratio is not None else ""
        value = f"{_number(row.value)} {row.unit}"
        lines.append(f"| {row.name} | {value} | {limit} | {ratio} | {row.goal} | {row.noise} |")
    return "\n".join(lines) + "\n"


def _repeat(part: Part) -> tuple[list[Row], list[str]]:
    """Its rows over all the runs that ended well, and words about those that did not."""
    runs: list[list[Row]] = []
    failures: list[str] = []
    rounds = 1 if TINY else part.rounds
    for number in range(1, rounds + 1):
        sys.stderr.write(f"measuring {part.name}, {number} of {rounds}\n")
        rows, trouble = part.run()
        if trouble is None:
            runs.append(rows)
        else:
            sys.stderr.write(f"{part.name} failed: {trouble}\n")
            failures.append(f"{part.name}, run {number} of {rounds}: {trouble}")
    return merge(runs), failures


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _heading(began: datetime, load: float) -> str:
    cores, at_end = os.cpu_count(), os.getloadavg()[0]
    when = f"{began:%Y-%m-%d %H:%M} to {datetime.now(UTC):%H:%M} UTC"
    where = f"{_processor()}, {cores} cores, {platform.system()} {platform.release()}"
    loads = f"load {load:.1f} at the beginning, {at_end:.1f} at the end"
    return f"{when}: {where}, Python {platform.python_version()}, {loads}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
