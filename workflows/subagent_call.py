"""The subagents under one agent: child workflows that stop and go on together with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from temporalio import workflow
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    is_cancelled_exception,
)

from holdfast.domain.steps import PendingCall
from holdfast.domain.subagent_steps import (
    GATE_SIGNAL,
    Gate,
    SubagentEnd,
    SubagentResult,
    SubagentStart,
)
from holdfast.domain.wire import STORE_DAMAGED, SUBAGENT_WORKFLOW
from workflows import steps
from workflows.damage import is_damage_met_elsewhere
from workflows.ids import fresh_id

AT_ONCE_MAX = 8


class Children:
    """The subagents that an agent has at work."""

    def __init__(self, session_id: str, gate: Gate | None = None) -> None:
        self.session_id = session_id
        self.gate = gate or Gate()
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._running: dict[str, None] = {}

    @property
    def active(self) -> int:
        """How many are at work now."""
        return len(self._running)

    async def call(self, run_id: str, call: PendingCall, *, parent_path: str) -> SubagentResult:
        """Start a subagent when there is a place for it, and wait for it; it closes the call."""
        start = SubagentStart(
            session_id=self.session_id,
            run_id=run_id,
            tool_call_id=call.id,
            name=call.subagent or "",
            parent_path=parent_path,
            invocation_id=fresh_id(),
        )
        async with self._slots:
            try:
                return await self._run(start, call.summary)
            except ChildWorkflowError as error:
                if is_cancelled_exception(error):
                    raise
                if is_damage_met_elsewhere(error.cause):
                    raise ApplicationError(str(error.cause), type=STORE_DAMAGED) from error
                return await self._broken(start, str(error.cause or error))

    def turn(self, *, is_open: bool, request_id: str = "") -> Gate:
        """The next word about the gate, for `spread`; only the session itself turns it."""
        self.gate = Gate(seq=self.gate.seq + 1, is_open=is_open, request_id=request_id)
        return self.gate

    def follow(self, gate: Gate) -> None:
        """Take over what came from above, unless something newer came before it."""
        if gate.seq > self.gate.seq:
            self.gate = gate

    async def spread(self, gate: Gate) -> None:
        """Pass a word about the gate on to everybody at work."""
        await asyncio.gather(*(self._signal(child, gate) for child in self._running))

    async def _run(self, start: SubagentStart, summary: str) -> SubagentResult:
        child = f"{start.session_id}/{start.invocation_id}"
        told = self.gate
        handle = await workflow.start_child_workflow(
            SUBAGENT_WORKFLOW,
            replace(start, gate=told),
            id=child,
            static_summary=(summary or start.name)[:200],
            result_type=SubagentResult,
        )
        self._running[child] = None
        try:
            if self.gate.seq != told.seq:
                await self._signal(child, self.gate)
            result: SubagentResult = await handle
            return result
        finally:
            del self._running[child]

    async def _broken(self, start: SubagentStart, words: str) -> SubagentResult:
        """The child could not even say how it ended: say it for it."""
        end = SubagentEnd(
            session_id=start.session_id,
            run_id=start.run_id,
            tool_call_id=start.tool_call_id,
            invocation_id=start.invocation_id,
            name=start.name,
            state="failed",
            error=f"The subagent {start.name} failed: {words}",
        )
        return await steps.finish_subagent(end)

    async def _signal(self, child: str, gate: Gate) -> None:
        handle = workflow.get_external_workflow_handle(child)
        try:
            await handle.signal(GATE_SIGNAL, gate)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.info("subagent %s is over already", child)
