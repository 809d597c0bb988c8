"""A compaction that the operator asked for: a run of its own, which ends with it."""

from __future__ import annotations

from temporalio.exceptions import FailureError

from holdfast.domain.compaction_steps import Compacted, CompactionFailed, CompactStep
from workflows import steps


async def compact_by_hand(step: CompactStep) -> Compacted:
    """Compact; whatever the last attempt died of, no run is left open."""
    try:
        return await steps.compact_context(step, summary="compact: operator_manual")
    except FailureError as error:
        if step.run_id is not None:
            await steps.fail_compaction(CompactionFailed(run_id=step.run_id, message=error.message))
        raise
