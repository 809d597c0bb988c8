"""When a history begins anew: it grew long, or a newer build is to go on with it."""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow


def should_roll() -> bool:
    """Whether the server suggests to begin a new history, or has another build for this one."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.is_target_worker_deployment_version_changed()


def roll_over(start: Any) -> NoReturn:
    """Begin a new history with `start`; on the newer build if there is one."""
    if workflow.info().is_target_worker_deployment_version_changed():
        # A pinned workflow would otherwise hand its old build down to the next history.
        upgrade = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
        workflow.continue_as_new(start, initial_versioning_behavior=upgrade)
    workflow.continue_as_new(start)
