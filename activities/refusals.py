"""A refusal is an answer: it travels to the workflow as an error that is never tried again."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from temporalio.exceptions import ApplicationError

from domain.errors import Refusal, Unavailable

P = ParamSpec("P")
T = TypeVar("T")


def answering(step: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Turn refusals into failures that Temporal carries; what may pass is tried again."""

    @functools.wraps(step)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await step(*args, **kwargs)
        except Refusal as refusal:
            raise ApplicationError(
                refusal.message,
                refusal.details or {},
                type=refusal.code,
                non_retryable=not isinstance(refusal, Unavailable),
            ) from refusal

    return answered
