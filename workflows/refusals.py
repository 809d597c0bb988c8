"""A refusal as it travels through Temporal."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.domain.errors import Refusal


def refused(refusal: Refusal) -> ApplicationError:
    """The failure that carries a refusal; it is an answer, so nobody tries again."""
    return ApplicationError(
        refusal.message, refusal.details or {}, type=refusal.code, non_retryable=True
    )
