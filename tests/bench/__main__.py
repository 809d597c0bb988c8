"""`make bench`: every measurement, one table, appended to docs/benchmarks.md.

Names of modules as arguments choose some of them; HOLDFAST_BENCH_TINY=1 only shows that they work
and writes nothing.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.rounds import TINY
from tests.bench.row import Row

MODULES = ("starting", "spine", "sockets", "terminals", "keystrokes", "forking", "library")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
HEAD = """\
# Benchmarks

Written by `make bench`, newest last. Each number stands beside the raw limit measured in the same
run, where there is one. The noise is the half-width of the middle half of the repeats.
"""


def main(chosen: list[str]) -> None:
    """Measure, show, and keep."""
    rows: list[Row] = []
    for name in chosen or MODULES:
        sys.stderr.write(f"measuring {name}\n")
        rows += importlib.import_module(f"tests.bench.{name}").measure()
    report = table(rows)
    sys.stdout.write(report)
    if not TINY:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
        PAGE.write_text(f"{before}\n## {_heading()}\n\n{report}", encoding="utf-8")


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | value | raw limit | ratio | goal | noise |", "|---|---|---|---|---|---|"]
    for row in rows:
        limit = f"{row.limit_name}: {_number(row.limit_value)}" if row.limit_name else ""
        ratio = f"{row.ratio:.2f} ×" if row.ratio is not None else ""
        value = f"{_number(row.value)} {row.unit}"
        lines.append(f"| {row.name} | {value} | {limit} | {ratio} | {row.goal} | {row.noise} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _heading() -> str:
    cores, load = os.cpu_count(), os.getloadavg()[0]
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    where = f"{_processor()}, {cores} cores, {platform.system()} {platform.release()}"
    return f"{when}: {where}, Python {platform.python_version()}, load {load:.1f} at the end"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main(sys.argv[1:])
