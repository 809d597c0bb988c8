"""Every effect of a session: its wire name, its time limits and what is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

T = TypeVar("T")

# A refusal is an answer, so it is never tried again; neither is what a provider refuses for good.
FINAL = [
    "bad_request",
    "validation_failed",
    "forbidden",
    "not_found",
    "conflict",
    "gone",
    "dsl_invalid",
    "provider_refused",
    "context_overflow",
    "PayloadsTooLarge",
]
HEARTBEAT = timedelta(seconds=5)


@dataclass(frozen=True)
class ShortStep:
    """A quick write of the database, run inside the workflow task."""

    name: str
    timeout: timedelta = timedelta(seconds=30)

    async def __call__(self, argument: Any, result: type[T]) -> T:
        """Run the step; a refusal comes out as the ApplicationError that it was."""
        try:
            return await workflow.execute_local_activity(  # type: ignore[no-any-return]
                self.name,
                argument,
                result_type=result,
                start_to_close_timeout=self.timeout,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(milliseconds=50),
                    maximum_interval=timedelta(seconds=5),
                    non_retryable_error_types=FINAL,
                ),
            )
        except ActivityError as error:
            raise refused(error) from error


@dataclass(frozen=True)
class LongStep:
    """An effect that heartbeats, and is taken over by another worker when its own dies."""

    name: str
    timeout: timedelta = timedelta(hours=1)
    attempts: int = 0
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)

    async def __call__(
        self,
        argument: Any,
        result: type[T],
        *,
        summary: str = "",
        timeout: timedelta | None = None,
        task_queue: str | None = None,
    ) -> T:
        """Run the step. Cancelled, it waits until the effect has really stopped."""
        try:
            return await workflow.execute_activity(  # type: ignore[no-any-return]
                self.name,
                argument,
                result_type=result,
                start_to_close_timeout=timeout or self.timeout,
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
        except ActivityError as error:
            raise refused(error) from error


def refused(error: ActivityError) -> BaseException:
    """What the step itself said; anything else stays what it is."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return ApplicationError(
            cause.message, *cause.details, type=cause.type, non_retryable=cause.non_retryable
        )
    return cause if cause is not None else error


load_session = ShortStep("load_session")
admit_message = ShortStep("admit_message")
start_queued = ShortStep("start_queued")
discard_queued = ShortStep("discard_queued")
finish_run = ShortStep("finish_run")
recover_run = ShortStep("recover_run")
end_session = ShortStep("end_session")
fail_session = ShortStep("fail_session")
reopen_session = ShortStep("reopen_session")
record_refusal = ShortStep("record_refusal")
close_tool_call = ShortStep("close_tool_call")
pause_session = ShortStep("pause_session")
resume_session = ShortStep("resume_session")
review_compaction = ShortStep("review_compaction")
begin_subagent = ShortStep("begin_subagent")
finish_subagent = ShortStep("finish_subagent")

call_model = LongStep("call_model", attempts=12)
call_tool = LongStep("call_tool", timeout=timedelta(hours=24), attempts=20)
snapshot_tree = LongStep("snapshot_tree", timeout=timedelta(minutes=2), attempts=3)
roll_back_session = LongStep("roll_back_session", timeout=timedelta(minutes=10), attempts=10)
compact_context = LongStep("compact_context", timeout=timedelta(minutes=5), attempts=5)
suspend_processes = LongStep("suspend_processes", timeout=timedelta(seconds=30), attempts=3)
resume_processes = LongStep("resume_processes", timeout=timedelta(seconds=30), attempts=3)
kill_processes = LongStep("kill_processes", timeout=timedelta(minutes=2), attempts=5)
sync_memory = LongStep(
    "sync_memory", timeout=timedelta(hours=6), attempts=10, longest_wait=timedelta(minutes=1)
)
