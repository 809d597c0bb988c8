"""Damage of the store: whichever step meets it, the whole session fails (K-024, K-139)."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.domain.steps import EndStep
from holdfast.domain.wire import STORE_DAMAGED
from workflows import steps
from workflows.background import failure_logged

# Older sessions that met damage outside of their run's own steps replay as they went then.
PATCH = "damage-fails-the-session"


def is_damage(error: BaseException | None) -> bool:
    """Whether a step failed because the store is damaged."""
    return isinstance(error, ApplicationError) and error.type == STORE_DAMAGED


def is_damage_met_elsewhere(error: BaseException | None) -> bool:
    """The same for a command or a subagent: a path that older histories do not have."""
    return is_damage(error) and workflow.patched(PATCH)


async def store_failure(session_id: str, failure: ApplicationError) -> None:
    """Move the session to `failed`; a store that takes not even that is told in the log."""
    step = EndStep(
        session_id=session_id,
        user_id="",
        error_code=failure.type,
        error_message=failure.message,
    )
    with failure_logged("the failure could not be stored"):
        await steps.fail_session(step)
