"""A refusal is an answer: it travels to the workflow as an error that is never tried again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.shutdown import finish_despite_shutdown
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.wire import BLOB_MISSING, STORE_DAMAGED
from holdfast.storage.database.blobs import BlobDamaged, BlobMissing
from holdfast.storage.database.trouble import is_damage

# A file on a share may be seen by other machines some seconds after it was written.
BLOB_WAIT, BLOB_RETRY_EVERY = timedelta(seconds=10), timedelta(seconds=1)
log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")


def answering(step: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn refusals into failures that Temporal carries; what may pass is tried again.

    Damage of the store is final too: it fails the session (K-139). A blob that is gone may be on
    its way here: it is waited for, then the run fails.
    """

    @functools.wraps(step)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> T:
        work = step(*args, **kwargs)
        try:
            local = activity.in_activity() and activity.info().is_local
            return await (finish_despite_shutdown(work) if local else work)
        except Refusal as refusal:
            # Its words are the whole answer; a chain of causes would be too long for the UI.
            raise ApplicationError(
                refusal.message,
                refusal.details or {},
                type=refusal.code,
                non_retryable=not isinstance(refusal, Unavailable),
            ) from None
        except Exception as error:
            if isinstance(error, BlobMissing) and not isinstance(error, BlobDamaged):
                raise _blob_missing(error) from error
            if not isinstance(error, BlobDamaged) and not is_damage(error):
                raise
            log.critical(
                "store.damaged",
                step=step.__name__,
                session_id=next(filter(None, map(_session_id, args)), None),
                error=str(error)[:500],
            )
            raise ApplicationError(str(error), type=STORE_DAMAGED, non_retryable=True) from error

    return answered


def blob_wait_is_over() -> bool:
    """Whether this step waited long enough for a blob that another machine may have written."""
    if not activity.in_activity():
        return True
    return datetime.now(UTC) - activity.info().scheduled_time > BLOB_WAIT


def _blob_missing(error: BlobMissing) -> ApplicationError:
    return ApplicationError(
        f"{error}: it was written, and is not in the blob store any more",
        type=BLOB_MISSING,
        non_retryable=blob_wait_is_over(),
        next_retry_delay=BLOB_RETRY_EVERY,
    )


def _session_id(argument: object) -> str | None:
    return getattr(argument, "session_id", None)
