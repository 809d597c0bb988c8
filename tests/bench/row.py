"""One measured number beside what limits it."""

from __future__ import annotations

from dataclasses import dataclass


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
