"""What travels between the loop and a compaction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CompactStep:
    """Make room in an agent's context."""

    session_id: str
    compaction_id: str
    trigger: str
    run_id: str | None = None  # the run that needs room; for operator_manual a run of its own
    checkpoint_id: str | None = None  # for a review by the operator
    agent_path: str = "primary"
    invocation_id: str | None = None
    strategy: str | None = None  # None: as the project file says
    focus_id: str | None = None  # blob with what the summary should keep above all
    user_id: str = ""  # who asked for it, where somebody did


@dataclass(frozen=True, kw_only=True)
class ReviewStep:
    """The operator's word on a compaction that waited for it."""

    session_id: str
    checkpoint_id: str
    new_run_id: str  # of the run that goes on with the compacted context
    user_id: str
    decision: str  # approve | reject
    review_id: str | None = None  # blob with the operator's summary and message ids


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """`running` with a new run, or `idle`."""

    state: str
    run_id: str | None = None
    max_steps: int = 200


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What came of it."""

    compaction_id: str
    superseded: int = 0
    enough: bool = True
    pending_review: bool = False
