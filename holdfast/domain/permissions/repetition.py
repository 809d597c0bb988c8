"""Whether an agent goes round in a circle: the same calls with the same results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.canonical import canonical, sha256

SAME_MAX, ALTERNATIONS_MAX = 6, 8
REMEMBERED = max(SAME_MAX, ALTERNATIONS_MAX)
FINGERPRINT_CHARS = 16
# They differ between two results that are the same to the model.
VOLATILE = frozenset({"duration_ms", "pty_id", "output_ref"})


def fingerprint(tool: str, given: Mapping[str, Any], output: object) -> str:
    """Equal for equal calls with equal results; of no use to learn what they were."""
    if isinstance(output, Mapping):
        output = {name: value for name, value in output.items() if name not in VOLATILE}
    return sha256(canonical([tool, dict(given), output]))[:FINGERPRINT_CHARS]


def repetition(recent: Sequence[str], last: str) -> str | None:
    """What repeats, in words for the operator; `last` names the call that was made last."""
    same = recent[-SAME_MAX:]
    if len(same) == SAME_MAX and len(set(same)) == 1:
        return f"The same call had the same result {SAME_MAX} times in a row: {last}"
    both = recent[-ALTERNATIONS_MAX:]
    if len(both) == ALTERNATIONS_MAX and len(set(both)) == 2 and _alternates(both):
        return f"Two calls took turns {ALTERNATIONS_MAX} times with the same results: {last}"
    return None


def _alternates(both: Sequence[str]) -> bool:
    return all(one == later for one, later in zip(both, both[2:], strict=False))
