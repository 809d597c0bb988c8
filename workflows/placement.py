"""Where the files and processes of a session are: its host, found once and asked from then on.

Steps that touch files or processes wait on the host's own queue. A host that takes none in time is
away; then an open call is closed as lost, and everything else is refused or left out.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TookTooLong

from holdfast.domain.checkpoint_steps import RollBackStep, RolledBack, TreeSaved, TreeStep
from holdfast.domain.errors import Conflict, HostIsAway, NoHost
from holdfast.domain.host_steps import HostRef, LostStep, MoveStep, Placed, PlaceStep, TakeStep
from holdfast.domain.steps import ProcessesStep, ToolResult, ToolStep
from workflows import steps
from workflows.refusals import refused
from workflows.steps import LongStep

In = TypeVar("In")
Out = TypeVar("Out")
STEPS_ON_HOSTS = "steps-on-hosts"
# So long a step waits that the session can do without, or that somebody waits for.
PATIENCE = timedelta(seconds=15)
ASK_WITHIN = timedelta(seconds=10)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 15.0


class Placement:
    """The host of one session, as one of its workflows knows it."""

    def __init__(self, session_id: str, host: HostRef | None = None) -> None:
        self.session_id = session_id
        self.host = host
        self._finding = asyncio.Lock()

    def forget(self) -> None:
        """Look it up again before the next step: it may be another one by then."""
        self.host = None

    async def call_tool(self, step: ToolStep, *, summary: str) -> ToolResult:
        """A tool call on the session's host; failed when the host is away for too long."""
        while True:
            host = await self.found()
            try:
                return await steps.call_tool(
                    step,
                    summary=summary,
                    task_queue=host.task_queue,
                    start_within=timedelta(seconds=host.lost_after_s),
                )
            except TookTooLong as error:
                if not _was_not_taken(error):
                    raise
            lost = LostStep(session_id=self.session_id, tool_call_id=step.tool_call_id)
            ended = await steps.end_lost_call(lost)
            self.forget()
            if ended.ended:
                return ToolResult(failed=ended.failed)

    async def on_host(
        self, step: LongStep[In, Out], argument: In, *, summary: str, patience: timedelta = PATIENCE
    ) -> Out:
        """A step of the session's host, or HostIsAway when the host does not take it soon."""
        host = await self.found()
        try:
            return await step(
                argument, summary=summary, task_queue=host.task_queue, start_within=patience
            )
        except TookTooLong as error:
            if not _was_not_taken(error):
                raise
            self.forget()
            raise refused(_away(host)) from error

    async def processes(
        self,
        step: LongStep[ProcessesStep, bool],
        argument: ProcessesStep,
        *,
        summary: str,
        patience: timedelta = PATIENCE,
    ) -> bool:
        """Do something to processes where they are; without a host there may be old ones here."""
        if not workflow.patched(STEPS_ON_HOSTS) or await self.looked_up() is None:
            return await step(argument, summary=summary)
        return await self.on_host(step, argument, summary=summary, patience=patience)

    async def save_tree(self, argument: TreeStep) -> TreeSaved:
        """Save the working directory where it is."""
        if not workflow.patched(STEPS_ON_HOSTS):
            return await steps.snapshot_tree(argument, summary="save files")
        return await self.on_host(steps.snapshot_tree, argument, summary="save files")

    async def roll_back(self, step: RollBackStep) -> RolledBack:
        """Go back to a checkpoint; its files come back where they are."""
        with_files = step.restore_files or step.undo_restore
        if with_files and workflow.patched(STEPS_ON_HOSTS):
            return await self.on_host(steps.roll_back_session, step, summary="roll back")
        return await steps.roll_back_session(step, summary="roll back")

    async def move(self, host_id: str, user_id: str) -> None:
        """Go on on another host; refused unless that host says that it has the folder."""
        asked = await steps.place_session(PlaceStep(session_id=self.session_id, host_id=host_id))
        target = asked.host
        assert target is not None, "a host that is not known is refused"
        if not await self._sees(target, only_look=True):
            raise refused(Conflict(f"the host {target.name} has no folder {asked.folder}"))
        step = MoveStep(session_id=self.session_id, host_id=host_id, user_id=user_id)
        self.host = await steps.move_session(step)

    async def looked_up(self) -> HostRef | None:
        """The host that the session has, if it has one."""
        if self.host is None:
            look = PlaceStep(session_id=self.session_id, only_look=True)
            self.host = (await steps.place_session(look)).host
        return self.host

    async def found(self) -> HostRef:
        """The host that the session has, or gets now; NoHost in words when no one can be it."""
        async with self._finding:
            wait_s, waited_s = FIRST_WAIT_S, 0.0
            while self.host is None:
                placed = await steps.place_session(PlaceStep(session_id=self.session_id))
                self.host = placed.host or await self._asked(placed)
                if self.host is not None:
                    break
                if waited_s > LONGEST_WAIT_S:
                    words = f"no host can take the folder {placed.folder}: {placed.why}"
                    raise refused(NoHost(words))
                await workflow.sleep(wait_s, summary="wait for a host")
                waited_s, wait_s = waited_s + wait_s, min(wait_s * 2, LONGEST_WAIT_S)
            return self.host

    async def _asked(self, placed: Placed) -> HostRef | None:
        """The first candidate that takes the session; None when there was nobody to ask."""
        silent = False
        for host in placed.candidates:
            try:
                if await self._sees(host):
                    return host
            except ApplicationError as error:
                if error.type != HostIsAway.code:
                    raise
                silent = True
        if placed.candidates and not silent:
            names = ", ".join(host.name for host in placed.candidates)
            raise refused(NoHost(f"no host has the folder {placed.folder} (asked: {names})"))
        return None

    async def _sees(self, host: HostRef, *, only_look: bool = False) -> bool:
        """Whether the host has the session's folder; unless only asked, it has the session then."""
        take = TakeStep(session_id=self.session_id, only_look=only_look)
        try:
            return await steps.take_session(
                take,
                summary=f"ask {host.name}",
                task_queue=host.task_queue,
                start_within=ASK_WITHIN,
            )
        except TookTooLong as error:
            if not _was_not_taken(error):
                raise
            raise refused(_away(host)) from error


def _away(host: HostRef) -> HostIsAway:
    return HostIsAway(f"the host {host.name} is away", {"host": host.name})


def _was_not_taken(error: TookTooLong) -> bool:
    return error.type == TimeoutType.SCHEDULE_TO_START
