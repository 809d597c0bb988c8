"""One measured number beside what limits it, and the middle of several runs of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Row:
    """A line of the report; `limit_value` was measured in the same run, `noise` says how sure."""

    name: str
    value: float
    unit: str
    limit_name: str | None = None
    limit_value: float | None = None
    ratio: float | None = None
    goal: str = ""
    noise: str = ""


def merge(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of all runs by name: the middle, and how far apart the runs lie."""
    by_name: dict[str, list[Row]] = {}
    for rows in runs:
        for row in rows:
            by_name.setdefault(row.name, []).append(row)
    return [_middle(rows) for rows in by_name.values()]


def _middle(rows: list[Row]) -> Row:
    ordered = sorted(rows, key=lambda row: row.value)
    found = ordered[len(ordered) // 2]
    if len(rows) == 1:
        return replace(found, noise=found.noise or "one run")
    low, high = ordered[0].value, ordered[-1].value
    between = f"{len(rows)} runs: {low:.3g} to {high:.3g}"
    limits = [row.limit_value for row in rows if row.limit_value is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return replace(
        found,
        value=statistics.median(row.value for row in rows),
        limit_value=statistics.median(limits) if limits else None,
        ratio=statistics.median(ratios) if ratios else None,
        noise=f"{found.noise}; {between}" if found.noise else between,
    )
