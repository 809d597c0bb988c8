"""A refusal is an answer: it travels to the workflow as an error that is never tried again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.shutdown import finish_despite_shutdown
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.wire import STORE_DAMAGED
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.trouble import is_damage

log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")


def answering(step: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn refusals into failures that Temporal carries; what may pass is tried again.

    Damage of the store is final too: it fails the session (K-139).
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
            if not isinstance(error, BlobMissing) and not is_damage(error):
                raise
            log.critical(
                "store.damaged",
                step=step.__name__,
                session_id=next(filter(None, map(_session_id, args)), None),
                error=str(error)[:500],
            )
            raise ApplicationError(str(error), type=STORE_DAMAGED, non_retryable=True) from error

    return answered


def _session_id(argument: object) -> str | None:
    return getattr(argument, "session_id", None)
