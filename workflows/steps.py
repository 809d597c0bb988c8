"""Every effect of a session: its wire name, its types, its time limits and what is tried again."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from holdfast.domain.checkpoint_steps import (
    ChangesFound,
    ChangesStep,
    Paused,
    PauseStep,
    Resumed,
    ResumeStep,
    RollBackStep,
    RolledBack,
    TreeSaved,
    TreeStep,
)
from holdfast.domain.compaction_steps import (
    Compacted,
    CompactionFailed,
    CompactStep,
    Reviewed,
    ReviewStep,
)
from holdfast.domain.host_steps import (
    HostRef,
    LostCall,
    LostStep,
    MoveStep,
    Placed,
    PlaceStep,
    TakeStep,
)
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import MemoryPlaced, MemoryPlaceStep, MemorySyncStep
from holdfast.domain.permissions.approval_steps import CheckResult, Decided, DecideStep
from holdfast.domain.steps import (
    AdmitStep,
    AdmittedRun,
    CloseToolStep,
    EndStep,
    Finished,
    FinishStep,
    KeepStep,
    Kept,
    Loaded,
    LoadStep,
    ModelResult,
    ModelStep,
    Next,
    NextStep,
    ProcessesStep,
    QueueStep,
    RecoverStep,
    RefusalStep,
    RetryStep,
    Steered,
    SteerStep,
    ToolResult,
    ToolStep,
)
from holdfast.domain.subagent_steps import SubagentBegun, SubagentEnd, SubagentResult, SubagentStart

In = TypeVar("In")
Out = TypeVar("Out")

# A refusal is an answer, so it is never tried again; neither is what a provider refuses for good.
FINAL = [
    "bad_request",
    "validation_failed",
    "forbidden",
    "not_found",
    "conflict",
    "gone",
    "dsl_invalid",
    "no_host",
    "provider_refused",
    "context_overflow",
    "PayloadsTooLarge",
]
HEARTBEAT = timedelta(seconds=5)


@dataclass(frozen=True)
class Step(Generic[In, Out]):
    """One effect; the activity of this name takes an `In` and returns an `Out`."""

    name: str
    _: KW_ONLY
    takes: type[In]
    gives: type[Out]


@dataclass(frozen=True, kw_only=True)
class ShortStep(Step[In, Out]):
    """A quick write of the database, run inside the workflow task."""

    timeout: timedelta = timedelta(seconds=30)

    async def __call__(self, argument: In) -> Out:
        """Run the step."""
        activity = workflow.execute_local_activity(
            self.name,
            argument,
            result_type=self.gives,
            start_to_close_timeout=self.timeout,
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=50),
                maximum_interval=timedelta(seconds=5),
                non_retryable_error_types=FINAL,
            ),
        )
        return await result_of(activity)


@dataclass(frozen=True, kw_only=True)
class LongStep(Step[In, Out]):
    """An effect that heartbeats, and is taken over by another worker when its own dies."""

    timeout: timedelta = timedelta(hours=1)
    attempts: int = 0
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)

    async def __call__(
        self,
        argument: In,
        *,
        summary: str = "",
        task_queue: str | None = None,
        start_within: timedelta | None = None,
    ) -> Out:
        """Run the step. Cancelled, it waits until the effect has really stopped.

        Not taken within `start_within`, it raises Temporal's TimeoutError and is not tried again.
        """
        activity = workflow.execute_activity(
            self.name,
            argument,
            result_type=self.gives,
            start_to_close_timeout=self.timeout,
            schedule_to_start_timeout=start_within,
            heartbeat_timeout=HEARTBEAT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary[:200] or None,
            task_queue=task_queue,
            retry_policy=RetryPolicy(
                initial_interval=self.first_wait,
                maximum_interval=self.longest_wait,
                maximum_attempts=self.attempts,
                non_retryable_error_types=FINAL,
            ),
        )
        return await result_of(activity)


async def result_of(activity: Awaitable[Out]) -> Out:
    """What the activity returns; its refusal is raised as the ApplicationError that it was."""
    try:
        return await activity
    except ActivityError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError):
            raise ApplicationError(
                cause.message, *cause.details, type=cause.type, non_retryable=cause.non_retryable
            ) from error
        raise cause or error from error


load_session = ShortStep("load_session", takes=LoadStep, gives=Loaded)
admit_message = ShortStep("admit_message", takes=AdmitStep, gives=AdmittedRun)
retry_run = ShortStep("retry_run", takes=RetryStep, gives=AdmittedRun)
start_queued = ShortStep("start_queued", takes=QueueStep, gives=str)
discard_queued = ShortStep("discard_queued", takes=QueueStep, gives=bool)
finish_run = ShortStep("finish_run", takes=FinishStep, gives=Finished)
recover_run = ShortStep("recover_run", takes=RecoverStep, gives=Finished)
end_session = ShortStep("end_session", takes=EndStep, gives=bool)
fail_session = ShortStep("fail_session", takes=EndStep, gives=bool)
reopen_session = ShortStep("reopen_session", takes=EndStep, gives=bool)
record_refusal = ShortStep("record_refusal", takes=RefusalStep, gives=bool)
close_tool_call = ShortStep("close_tool_call", takes=CloseToolStep, gives=bool)
decide_approval = ShortStep("decide_approval", takes=DecideStep, gives=Decided)
pause_session = ShortStep("pause_session", takes=PauseStep, gives=Paused)
resume_session = ShortStep("resume_session", takes=ResumeStep, gives=Resumed)
fail_compaction = ShortStep("fail_compaction", takes=CompactionFailed, gives=bool)
review_compaction = ShortStep("review_compaction", takes=ReviewStep, gives=Reviewed)
begin_subagent = ShortStep("begin_subagent", takes=SubagentStart, gives=SubagentBegun)
finish_subagent = ShortStep("finish_subagent", takes=SubagentEnd, gives=SubagentResult)

keep_waiting = ShortStep("keep_waiting", takes=KeepStep, gives=Kept)
steer_run = ShortStep("steer_run", takes=SteerStep, gives=Steered)
admit_next = ShortStep("admit_next", takes=NextStep, gives=Next)

place_session = ShortStep("place_session", takes=PlaceStep, gives=Placed)
move_session = ShortStep("move_session", takes=MoveStep, gives=HostRef)
end_lost_call = ShortStep("end_lost_call", takes=LostStep, gives=LostCall)

take_session = LongStep(
    "take_session", takes=TakeStep, gives=bool, timeout=timedelta(seconds=30), attempts=3
)
call_model = LongStep("call_model", takes=ModelStep, gives=ModelResult, attempts=12)
call_tool = LongStep(
    "call_tool", takes=ToolStep, gives=ToolResult, timeout=timedelta(hours=24), attempts=20
)
check_call = LongStep(
    "check_call", takes=ToolStep, gives=CheckResult, timeout=timedelta(hours=24), attempts=20
)
snapshot_tree = LongStep(
    "snapshot_tree", takes=TreeStep, gives=TreeSaved, timeout=timedelta(minutes=2), attempts=3
)
roll_back_session = LongStep(
    "roll_back_session",
    takes=RollBackStep,
    gives=RolledBack,
    timeout=timedelta(minutes=10),
    attempts=10,
)
compact_context = LongStep(
    "compact_context", takes=CompactStep, gives=Compacted, timeout=timedelta(minutes=5), attempts=5
)
suspend_processes = LongStep(
    "suspend_processes", takes=ProcessesStep, gives=bool, timeout=timedelta(seconds=30), attempts=3
)
resume_processes = LongStep(
    "resume_processes", takes=ProcessesStep, gives=bool, timeout=timedelta(seconds=30), attempts=3
)
kill_processes = LongStep(
    "kill_processes", takes=ProcessesStep, gives=bool, timeout=timedelta(minutes=2), attempts=5
)
read_changes = LongStep(
    "read_changes",
    takes=ChangesStep,
    gives=ChangesFound,
    timeout=timedelta(minutes=1),
    attempts=2,
)
place_memory = ShortStep("place_memory", takes=MemoryPlaceStep, gives=MemoryPlaced)
sync_memory = LongStep(
    "sync_memory",
    takes=MemorySyncStep,
    gives=SyncReport,
    timeout=timedelta(hours=6),
    attempts=10,
    longest_wait=timedelta(minutes=1),
)
