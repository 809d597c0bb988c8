"""Trouble with a provider: what is tried again and after which wait, and who is told of it."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from holdfast.agent.errors import UNREACHABLE, PassingProviderError, PermanentProviderError
from holdfast.domain.clock import now_ms
from holdfast.domain.control_events import ModelRecovered, ModelRetrying
from holdfast.domain.steps import ModelStep
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import events

# About half a minute for a provider that is away, two minutes for one that asks to wait.
PROVIDER_ATTEMPTS, RATE_LIMITED_ATTEMPTS = 6, 9
ASKED_WAIT_S_MAX = 60.0
MESSAGE_CHARS_MAX = 500


def as_failure(error: PermanentProviderError | PassingProviderError) -> ApplicationError:
    """The failure of this attempt; final, or with the wait that the provider asks for."""
    if isinstance(error, PermanentProviderError):
        return ApplicationError(error.message, type="provider_refused", non_retryable=True)
    most = RATE_LIMITED_ATTEMPTS if error.code == "rate_limited" else PROVIDER_ATTEMPTS
    return ApplicationError(
        UNREACHABLE,
        {"code": error.code, "message": error.message},
        type="provider_unreachable",
        non_retryable=activity.info().attempt >= most,
        next_retry_delay=_longer_wait(error.retry_after_s),
    )


def retrying(
    step: ModelStep, error: PassingProviderError, failure: ApplicationError
) -> ModelRetrying:
    """That the call is made again after this attempt, and when."""
    wait = failure.next_retry_delay or timedelta(seconds=_own_wait_s())
    return ModelRetrying(
        run_id=step.run_id,
        attempt=activity.info().attempt + 1,
        next_in_ms=round(wait.total_seconds() * 1000),
        code=error.code,
        message=error.message[:MESSAGE_CHARS_MAX],
    )


def tell(db: Db, session_id: str, retry: ModelRetrying) -> None:
    """Say that a call is made again; it stays with the session until the provider answers."""
    change(db, SessionRow, session_id, trouble={**retry.data(), "at": now_ms()})
    events.append(db, session_id, retry, run_id=retry.run_id)


def clear(db: Db, step: ModelStep, session: SessionRow) -> None:
    """The provider answered: its trouble with this run, if it had any, is over."""
    if session.trouble is not None and session.trouble.get("run_id") == step.run_id:
        change(db, SessionRow, step.session_id, trouble=None)
        events.append(db, step.session_id, ModelRecovered(run_id=step.run_id), run_id=step.run_id)


def _longer_wait(asked_s: float | None) -> timedelta | None:
    """What the provider asks for, when that is more than the policy waits by itself.

    One that says «in a second» for a minute must not use all attempts up in some seconds.
    """
    if not asked_s:
        return None
    longer = asked_s > _own_wait_s()
    return timedelta(seconds=min(asked_s, ASKED_WAIT_S_MAX)) if longer else None


def _own_wait_s() -> float:
    """How long the policy of the step waits after this attempt."""
    info = activity.info()
    policy = info.retry_policy or RetryPolicy()
    own_s = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (
        info.attempt - 1
    )
    if policy.maximum_interval is not None:
        own_s = min(own_s, policy.maximum_interval.total_seconds())
    return own_s
