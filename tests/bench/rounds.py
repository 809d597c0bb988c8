"""Repeated measurements: their middle, and how far apart they lie."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence

TINY = os.environ.get("HOLDFAST_BENCH_TINY", "") == "1"


def count(full: int) -> int:
    """How often to repeat; a tiny run only shows that the benchmark works."""
    return max(2, full // 20) if TINY else full


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """The value that one in twenty exceeds."""
    return _percentile(values, 0.95)


def p99(values: Sequence[float]) -> float:
    """The value that one in a hundred exceeds."""
    return _percentile(values, 0.99)


def noise(values: Sequence[float]) -> str:
    """Half of the values lie within this much of the median, in percent of it."""
    if len(values) < 4:
        return f"{min(values):.3g} to {max(values):.3g}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"±{50 * (high - low) / max(middle(values), 1e-9):.0f} %"


def timed_ms(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
