"""A subagent: the same loop as a session's, as a child workflow with its own path and limits."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from holdfast.domain.permissions.approval_steps import ANSWERED_SIGNAL
from holdfast.domain.session_start import RunProgress
from holdfast.domain.steps import CloseToolStep, PendingCall
from holdfast.domain.subagent_steps import (
    CAGE_SPAWN_FAILED,
    GATE_SIGNAL,
    PAUSE_SIGNAL,
    SUBAGENT_LIMIT,
    SubagentEnd,
    SubagentPause,
    SubagentResult,
    SubagentStart,
)
from holdfast.domain.subagent_steps import Gate as GateState
from holdfast.domain.wire import SUBAGENT_WORKFLOW
from workflows import steps
from workflows.agent_loop import RESUMED, AgentLoop, Ending, Host
from workflows.approvals import Approvals
from workflows.background import Background
from workflows.damage import is_damage_met_elsewhere
from workflows.gate import Gate
from workflows.ids import fresh_id
from workflows.placement import Placement
from workflows.rolling import roll_over
from workflows.subagent_call import Children

BUSY_WAIT = timedelta(seconds=2)
ASK_AGAIN = timedelta(seconds=30)
NO_PLACE = "All places for subagents of this run are taken. Do the work yourself, or ask later."


@workflow.defn(name=SUBAGENT_WORKFLOW)
class SubagentWorkflow(Host):
    """Runs until its answer, its limits, or the end of the run that it belongs to."""

    @workflow.init
    def __init__(self, start: SubagentStart) -> None:
        self.start = start
        self.begun = start.begun
        self.children = Children(start.session_id, start.gate)
        self.gate = Gate(lambda: self.children.gate.is_open, self._is_stopped)
        self.placement = Placement(start.session_id)
        self.approvals = Approvals(start.session_id)
        self._killed = False
        self.walltime_left_s = start.walltime_left_s
        self._acknowledged: set[str] = set()
        self.background = Background()

    @workflow.run
    async def run(self, start: SubagentStart) -> SubagentResult:
        """Work on the prompt; how it ended is stored before this returns."""
        try:
            if self.begun is None and not await self._begin():
                return await self._finish("failed", NO_PLACE)
            return await self._work()
        except BaseException as error:
            if is_cancelled_exception(error):
                await self._finish("killed", None)
            raise

    @workflow.signal(name=GATE_SIGNAL, description="Stop or go on with the session: internal.")
    def hear(self, gate: GateState) -> None:
        """The session was paused or resumed; pass it on to subagents of our own."""
        if gate.request_id:
            self._acknowledged.add(gate.request_id)
        self.children.follow(gate)
        if not gate.is_open:
            self.placement.forget()  # a session that is paused may be moved
        self._describe()
        self.background.start(self.children.spread(gate))

    @workflow.signal(name=ANSWERED_SIGNAL, description="A call of ours was answered: internal.")
    def hear_answer(self, approval_id: str) -> None:
        """An operator allowed or denied a call that waits."""
        self.approvals.hear(approval_id)

    async def _begin(self) -> bool:
        """Take a place in the run; False when a nested subagent finds none.

        A nested one must not wait: its caller holds the place that it might be waiting for.
        """
        while True:
            begun = await steps.begin_subagent(self.start)
            if not begun.busy:
                self.begun = begun
                self.walltime_left_s = begun.walltime_s
                return True
            if self.start.parent_path != "primary":
                return False
            await workflow.sleep(BUSY_WAIT, summary="wait for a place")

    async def _work(self) -> SubagentResult:
        assert self.begun is not None, "begun before it works"
        loop = AgentLoop(
            session_id=self.start.session_id,
            progress=self.start.progress
            or RunProgress(run_id=self.start.run_id, max_steps=self.begun.max_steps),
            gate=self.gate,
            host=self,
            placement=self.placement,
            agent_path=self.begun.agent_path,
            invocation_id=self.start.invocation_id,
            futile_compactions=self.start.futile_compactions,
        )
        self._describe()
        try:
            ending = await self._in_time(loop)
        except ApplicationError as error:
            killed = error.type == SUBAGENT_LIMIT
            result = await self._finish("killed" if killed else "failed", error.message)
            if is_damage_met_elsewhere(error):
                raise  # it fails the session, so the caller must hear of it
            if error.type == CAGE_SPAWN_FAILED:
                return replace(result, cage_failure=error.message)
            return result
        if ending is Ending.ROLL:
            await self._roll(loop)
        return await self._finish("done", None)

    async def _in_time(self, loop: AgentLoop) -> Ending:
        """Run the loop within its walltime, which stands still while it is paused or asked for."""
        if self.walltime_left_s is None:
            return await loop.run()
        task = asyncio.create_task(loop.run())
        try:
            while not task.done():
                await workflow.wait_condition(lambda: task.done() or self._spends_time())
                await self._spend(task)
            return await task
        finally:
            if not task.done():
                self._killed = True
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _spend(self, task: asyncio.Task[Ending]) -> None:
        left = self.walltime_left_s or 0.0
        began = workflow.now()
        try:
            await workflow.wait_condition(
                lambda: task.done() or not self._spends_time(),
                timeout=timedelta(seconds=max(left, 0.001)),
                timeout_summary="walltime",
            )
        except TimeoutError:
            words = f"Subagent {self.start.name} exceeded walltime limit."
            raise ApplicationError(words, type=SUBAGENT_LIMIT) from None
        self.walltime_left_s = left - (workflow.now() - began).total_seconds()

    def _spends_time(self) -> bool:
        return self.children.gate.is_open and not self.approvals.waiting

    async def _roll(self, loop: AgentLoop) -> None:
        await self.background.settled()
        start = self.start
        roll_over(
            SubagentStart(
                session_id=start.session_id,
                run_id=start.run_id,
                tool_call_id=start.tool_call_id,
                name=start.name,
                parent_path=start.parent_path,
                invocation_id=start.invocation_id,
                gate=self.children.gate,
                begun=self.begun,
                progress=loop.progress,
                walltime_left_s=self.walltime_left_s,
                futile_compactions=loop.futile_compactions,
            )
        )

    async def _finish(self, state: str, error: str | None) -> SubagentResult:
        end = SubagentEnd(
            session_id=self.start.session_id,
            run_id=self.start.run_id,
            tool_call_id=self.start.tool_call_id,
            invocation_id=self.start.invocation_id,
            name=self.start.name,
            state=state,
            error=error,
        )
        return await steps.finish_subagent(end)

    # -- what the loop asks of us ------------------------------------------------------------------

    async def pause(self, created_by: str, *, reason: str = "", call: PendingCall | None) -> None:
        """Have the whole session paused, and wait until it goes on."""
        ask = SubagentPause(
            request_id=fresh_id(),
            created_by=created_by,
            reason=reason,
            tool_call_id=call.id if call is not None else None,
        )
        await self._paused(ask)
        await self.gate.passed()
        if call is not None:
            closing = CloseToolStep(
                session_id=self.start.session_id, tool_call_id=call.id, text=RESUMED
            )
            await steps.close_tool_call(closing)

    async def _paused(self, ask: SubagentPause) -> None:
        """Ask until the session has answered: an answer may pass us by while we start."""
        session = workflow.get_external_workflow_handle(self.start.session_id)
        while ask.request_id not in self._acknowledged:
            await session.signal(PAUSE_SIGNAL, ask)
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: ask.request_id in self._acknowledged,
                    timeout=ASK_AGAIN,
                    timeout_summary="wait for the session",
                )
        self._acknowledged.discard(ask.request_id)

    async def subagent(self, call: PendingCall) -> None:
        """See a subagent of our own through; only one without its cage stops us too (K-136)."""
        assert self.begun is not None, "begun before it works"
        path = self.begun.agent_path
        result = await self.children.call(self.start.run_id, call, parent_path=path)
        if result.cage_failure is not None:
            raise ApplicationError(result.cage_failure, type=CAGE_SPAWN_FAILED)

    def _is_stopped(self) -> bool:
        return self._killed or workflow.cancellation_reason() is not None

    def _describe(self) -> None:
        path = self.begun.agent_path if self.begun is not None else self.start.name
        state = "running" if self.children.gate.is_open else "paused"
        workflow.set_current_details(
            f"**{path}**\n- state: `{state}`\n- run: `{self.start.run_id}`"
        )
