"""The loop of an agent: ask the model, do what it asks for, until it has nothing more to ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.domain.compaction_steps import Compacted, CompactStep
from holdfast.domain.permissions.approval_steps import Asked
from holdfast.domain.permissions.repetition import REMEMBERED, repetition
from holdfast.domain.session_start import RunProgress
from holdfast.domain.steps import ModelResult, ModelStep, PendingCall, ToolStep
from holdfast.domain.subagent_steps import CAGE_SPAWN_FAILED, SUBAGENT_LIMIT
from holdfast.domain.tools import CHECKPOINT_TOOL
from workflows import steps
from workflows.approvals import APPROVALS, Approvals
from workflows.gate import Gate
from workflows.ids import fresh_id
from workflows.placement import Placement
from workflows.rolling import should_roll

FUTILE_MAX = 2
# So often a run may be compacted before the operator has to look, whatever each one freed.
COMPACTIONS_MAX = 50
COMPACTIONS_BOUND = "a run has a bound of compactions"
STUCK_GUARD = "a run pauses when its calls repeat"
FREES_TOO_LITTLE = "Compaction frees too little: the context stays above its limit."
RESUMED = "The operator resumed the session."


class Ending(StrEnum):
    """Why the loop came back."""

    DONE = "done"
    ROLL = "roll"
    REVIEW = "review"


class Host:
    """What the loop asks of the session or subagent it runs in."""

    approvals: Approvals

    async def pause(self, created_by: str, *, reason: str = "", call: PendingCall | None) -> None:
        """Make a checkpoint and come back when the session runs again."""
        raise NotImplementedError

    async def subagent(self, call: PendingCall) -> None:
        """See a subagent call through to its result."""
        raise NotImplementedError

    async def steers(self, progress: RunProgress) -> bool:
        """Say what the operator said meanwhile; whether there was something to look for."""
        return False


@dataclass
class AgentLoop:
    """One agent at work. Between any two steps it can be paused, cancelled or rolled over."""

    session_id: str
    progress: RunProgress
    gate: Gate
    host: Host
    placement: Placement
    agent_path: str = "primary"
    invocation_id: str | None = None
    may_roll: bool = True
    futile_compactions: int = 0
    # What the calls of the present answer came to; equal calls of one answer count once.
    seen_in_answer: set[str] = field(default_factory=set)

    async def run(self) -> Ending:
        """Go on until the model's last answer, or until it is time to roll over."""
        while True:
            await self.gate.passed()
            if self.progress.pending:
                await self._tools()
            elif await self.host.steers(self.progress):
                continue
            elif self.progress.answered:
                return Ending.DONE
            elif self.may_roll and should_roll():
                return Ending.ROLL
            else:
                ending = await self._model()
                if ending is not None:
                    return ending

    async def _model(self) -> Ending | None:
        progress = self.progress
        if progress.step >= progress.max_steps:
            raise ApplicationError(
                f"The run reached its limit of {progress.max_steps} steps.",
                type="max_steps_reached",
            )
        result = await self._ask(after_compaction=False)
        if result.must_compact or result.overflow:
            trigger = "provider_overflow_retry" if result.overflow else "threshold_crossed"
            if not await self._compact(trigger):
                return Ending.REVIEW
            await self.gate.passed()
            result = await self._ask(after_compaction=True)
            if result.overflow:
                raise ApplicationError(
                    "The context is too long for the model, also after a compaction.",
                    type="context_overflow",
                )
        progress.step += 1
        progress.pending = list(result.pending)
        self.seen_in_answer.clear()
        progress.answered = not result.pending
        if result.budget_reached and result.pending:
            await self.host.pause("budget", reason=result.budget_reached, call=None)
        return None

    async def _ask(self, *, after_compaction: bool) -> ModelResult:
        step = ModelStep(
            session_id=self.session_id,
            run_id=self.progress.run_id,
            step=self.progress.step,
            call_id=fresh_id(),
            message_id=fresh_id(),
            agent_path=self.agent_path,
            invocation_id=self.invocation_id,
            after_compaction=after_compaction,
        )
        summary = f"{self.agent_path}: step {self.progress.step + 1}"
        return await steps.call_model(step, summary=summary)

    async def _compact(self, trigger: str) -> bool:
        """Make room. False when an operator has to look first."""
        step = CompactStep(
            session_id=self.session_id,
            run_id=self.progress.run_id,
            compaction_id=fresh_id(),
            checkpoint_id=fresh_id(),
            agent_path=self.agent_path,
            invocation_id=self.invocation_id,
            trigger=trigger,
        )
        done = await self._carried_out(step)
        if done.pending_review:
            return False
        reason = self._reason_to_pause(done)
        if reason is not None:
            await self.host.pause("compaction", reason=reason, call=None)
        return True

    async def _carried_out(self, step: CompactStep) -> Compacted:
        while True:
            done = await steps.compact_context(step, summary=f"compact: {step.trigger}")
            if not done.set_aside:
                return done
            # Paused before the proposal was stored: the same one is proposed after the pause.
            await self.gate.passed()

    def _reason_to_pause(self, done: Compacted) -> str | None:
        self.progress.compactions += 1
        self.futile_compactions = 0 if done.enough else self.futile_compactions + 1
        if self.futile_compactions >= FUTILE_MAX:
            self.futile_compactions = 0
            return FREES_TOO_LITTLE
        if self.progress.compactions % COMPACTIONS_MAX or not workflow.patched(COMPACTIONS_BOUND):
            return None
        return f"This run was compacted {self.progress.compactions} times."

    async def _tools(self) -> None:
        """Calls in order; neighbours that do not disturb each other run at once."""
        while self.progress.pending:
            await self.gate.passed()
            first = self.progress.pending[0]
            group = [first] if first.alone else self._together()
            await self._settle_all(group)

    def _together(self) -> list[PendingCall]:
        group: list[PendingCall] = []
        for call in self.progress.pending:
            if call.alone:
                break
            group.append(call)
        return group

    async def _settle_all(self, group: list[PendingCall]) -> None:
        tasks = [asyncio.create_task(self._settle(call)) for call in group]
        try:
            await asyncio.gather(*tasks)
        except (Exception, asyncio.CancelledError):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _settle(self, call: PendingCall) -> None:
        if call.name == CHECKPOINT_TOOL:
            await self.host.pause("model", call=call)
        elif call.subagent is not None:
            if not call.guarded or await self._is_allowed(call):
                await self.host.subagent(call)
        else:
            await self._tool(call)
        self.progress.pending = [one for one in self.progress.pending if one.id != call.id]

    async def _is_allowed(self, call: PendingCall) -> bool:
        """Whether a subagent may be called; one that may not has its answer already."""
        step = ToolStep(
            session_id=self.session_id,
            run_id=self.progress.run_id,
            tool_call_id=call.id,
            tool_name=call.name,
            may_ask=True,
        )
        while True:
            seen = await steps.check_call(step, summary=f"may it: {call.summary}")
            if seen.asked is None:
                return seen.allowed
            await self._approved(seen.asked)

    async def _approved(self, asked: Asked) -> None:
        # A step that ends well hides a cancellation that came meanwhile: nobody may wait then.
        await self.gate.passed()
        await self.host.approvals.answered(asked)
        await self.gate.passed()

    async def _repeats(self, call: PendingCall, fingerprint: str) -> None:
        """Pause when the last calls and their results were the same again and again."""
        if not fingerprint or fingerprint in self.seen_in_answer:
            return
        self.seen_in_answer.add(fingerprint)
        progress = self.progress
        progress.recent = [*progress.recent, fingerprint][-REMEMBERED:]
        words = repetition(progress.recent, call.summary)
        if words is not None and workflow.patched(STUCK_GUARD):
            progress.recent = []
            await self.host.pause("stuck", reason=words, call=None)

    async def _tool(self, call: PendingCall) -> None:
        step = ToolStep(
            session_id=self.session_id,
            run_id=self.progress.run_id,
            tool_call_id=call.id,
            tool_name=call.name,
            may_ask=True,
        )
        # The tool watches its own time, which stands still while it is suspended.
        make = self.placement.call_tool if call.on_host else steps.call_tool
        result = await make(step, summary=call.summary)
        while result.asked is not None and workflow.patched(APPROVALS):
            await self._approved(result.asked)
            result = await make(step, summary=call.summary)
        name = self.agent_path.rsplit(".", 1)[-1]
        if result.cage_failure is not None:  # K-136: the run fails with the cage's details
            who = "" if self.invocation_id is None else f"Subagent {name}: "
            raise ApplicationError(f"{who}{result.cage_failure}", type=CAGE_SPAWN_FAILED)
        if result.exceeded is not None and self.invocation_id is not None:
            words = f"Subagent {name} exceeded {result.exceeded} limit."
            raise ApplicationError(words, type=SUBAGENT_LIMIT)
        await self._repeats(call, result.fingerprint)
