"""What a session does between its runs: it waits, compacts on schedule, and lets go in the end."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from holdfast.domain.lifecycle import OVER, State
from workflows.background import failure_logged
from workflows.rolling import should_roll
from workflows.session_core import SessionCore

PASSIVATE_AFTER = timedelta(days=7)
SOON = timedelta(milliseconds=1)


async def work_came(core: SessionCore) -> bool:
    """Wait for work, compacting on schedule meanwhile; False after a week without any."""
    until = workflow.now() + PASSIVATE_AFTER
    while not has_work(core):
        wait = until - workflow.now()
        if core.carried.compact_every_minutes and core.carried.compaction_due:
            wait = min(wait, timedelta(minutes=core.carried.compact_every_minutes))
        try:
            await workflow.wait_condition(lambda: has_work(core), timeout=max(wait, SOON))
        except TimeoutError:
            if workflow.now() < until:
                await core.compact_on_schedule()
                continue
            await core.background.settled()
            return has_work(core)
    return True


async def begin_next(core: SessionCore) -> None:
    """Begin a run with the next message, if one waits; one that cannot begin waits on."""
    if not _begins(core):
        return  # without a wait for the lock: old histories drove their run at once
    with failure_logged("the message that waits could not begin"):
        async with core.lock, core.damage_fails():
            await core.begin_next()


def has_work(core: SessionCore) -> bool:
    """Whether there is something to drive, to stop, to end or to roll over."""
    driven = core.run is not None and core.state is State.RUNNING
    stopped = core.run is not None and core.stop is not None
    rolls = core.run is None and should_roll()
    return core.state in OVER or driven or stopped or _begins(core) or rolls


def _begins(core: SessionCore) -> bool:
    return core.state is State.IDLE and core.carried.waiting


def is_cancel_of_workflow(error: BaseException) -> bool:
    """Whether somebody cancelled the workflow; an eviction from the cache looks much alike."""
    return is_cancelled_exception(error) and workflow.cancellation_reason() is not None
