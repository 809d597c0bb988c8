"""One workflow per session: it is the session's lock, and every state change goes through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.domain.checkpoint_steps import PauseStep
from holdfast.domain.commands import (
    REJECT,
    Answer,
    Cancel,
    Command,
    Compact,
    Move,
    NewMessage,
    Pause,
    Resume,
    Retry,
    RollBack,
)
from holdfast.domain.compaction_steps import CompactStep
from holdfast.domain.errors import Conflict
from holdfast.domain.lifecycle import OVER, Action, State
from holdfast.domain.permissions.approval_steps import Decide
from holdfast.domain.session_start import SessionStart
from holdfast.domain.steps import EndStep, QueueStep, RefusalStep
from holdfast.domain.subagent_steps import PAUSE_SIGNAL, SubagentPause
from holdfast.domain.wire import WORKFLOW
from workflows import approvals, steps, waiting
from workflows.compacting import compact_by_hand
from workflows.ids import fresh_id
from workflows.messages import retry_run, take_message
from workflows.moving import move_host, roll_back
from workflows.refusals import refused
from workflows.resuming import resume
from workflows.rolling import roll_over, should_roll
from workflows.session_core import SessionCore

C = TypeVar("C", bound=Command)
MANUAL_COMPACTION_IS_A_RUN = "a manual compaction is a run"


@workflow.defn(name=WORKFLOW)
class SessionWorkflow:
    """Handlers decide and answer at once; `run` does the work."""

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        self.core = SessionCore(start.session_id, start.carried)

    @workflow.run
    async def run(self, start: SessionStart) -> str:
        """Live. `Request Cancellation` in the Temporal UI stops the run, and not the session."""
        try:
            return await self._live()
        except BaseException as error:
            if not waiting.is_cancel_of_workflow(error):
                raise
        if self.core.run is not None:
            self.core.halt(self.core.run, self.core.carried.operator)
        return await self._live()

    async def _live(self) -> str:
        """Drive run after run; sleep between them; let go after a week without work."""
        core = self.core
        if not core.loaded:
            await core.load()
        else:
            core.describe()
        while True:
            if core.state in OVER:
                await core.background.settled()
                if core.state in OVER:  # and was not reopened meanwhile
                    return core.state.value
            if not await waiting.work_came(core):
                return "passivated"
            await waiting.begin_next(core)
            if core.run is not None and core.state in (State.RUNNING, State.PAUSED):
                await core.drive()
            if core.rolling or (core.run is None and should_roll()):
                core.rolling = False
                await core.background.settled()
                if core.stop is None:  # a cancel that came meanwhile is seen through first
                    core.carried.host = core.placement.host
                    roll_over(SessionStart(core.id, core.carried))

    @workflow.update(description="Send a message; its run starts, or waits for a slot.")
    async def message(self, command: NewMessage) -> Answer:
        """Accept one message; what its run does follows on the stream."""
        return await self._once(command, self._message)

    @message.validator
    def check_message(self, command: NewMessage) -> None:
        """Refused here, a message leaves no trace in history."""
        if command.when_busy == REJECT or (self.core.loaded and self.core.state in OVER):
            self._check(command, Action.START)

    @workflow.update(description="Run the last run's message again, after it failed.")
    async def retry(self, command: Retry) -> Answer:
        """Run again what failed or was cancelled."""
        return await self._once(command, self._retry)

    @retry.validator
    def check_retry(self, command: Retry) -> None:
        """Only while nothing runs."""
        self._check(command, Action.START)

    @workflow.update(description="Pause at a checkpoint.")
    async def checkpoint(self, command: Pause) -> Answer:
        """Pause the running session."""
        return await self._once(command, self._checkpoint)

    @checkpoint.validator
    def check_checkpoint(self, command: Pause) -> None:
        """Only what runs can be paused."""
        self._check(command, Action.PAUSE)

    @workflow.update(description="Go on: from the queue, or from the checkpoint.")
    async def resume(self, command: Resume) -> Answer:
        """Resume a queued or paused session."""
        return await self._once(command, self._resume)

    @workflow.update(description="Drop the queued message.")
    async def discard(self, command: Command) -> Answer:
        """Discard what is queued."""
        return await self._once(command, self._discard)

    @discard.validator
    def check_discard(self, command: Command) -> None:
        """Only what is queued can be discarded."""
        self._check(command, Action.DISCARD)

    @workflow.update(description="Stop the active run; its partial output stays.")
    async def cancel(self, command: Cancel) -> Answer:
        """Cancel the active run; the session is idle when it has stopped."""
        return await self._once(command, self._cancel)

    @workflow.update(description="Go back to a checkpoint; nothing is deleted.")
    async def rollback(self, command: RollBack) -> Answer:
        """Roll back to a checkpoint."""
        return await self._once(command, self._rollback)

    @rollback.validator
    def check_rollback(self, command: RollBack) -> None:
        """Only from paused or idle."""
        self._check(command, Action.ROLL_BACK)

    @workflow.update(description="End the session.")
    async def end(self, command: Command) -> Answer:
        """End the session for good."""
        return await self._once(command, self._end)

    @end.validator
    def check_end(self, command: Command) -> None:
        """Once only."""
        self._check(command, Action.END)

    @workflow.update(description="Open a cleanly ended session again.")
    async def reopen(self, command: Command) -> Answer:
        """Reopen the session."""
        return await self._once(command, self._reopen)

    @workflow.update(description="Compact the context now.")
    async def compact(self, command: Compact) -> Answer:
        """Compact an idle session's context."""
        return await self._once(command, self._compact)

    @workflow.update(description="Go on on another host, which has the session's folder.")
    async def move(self, command: Move) -> Answer:
        """Move an idle or paused session to another host."""
        return await self._once(command, self._move)

    @workflow.update(description="Answer whether a call may be made.")
    async def decide(self, command: Decide) -> Answer:
        """Allow or deny a call that waits for it; the first answer wins."""
        return await self._once(command, lambda given: approvals.decide(self.core, given))

    @workflow.signal(name="message", description='Send a message: {"content": "…"}.')
    async def message_signal(self, command: NewMessage) -> None:
        """A message from the Temporal UI carries its content itself."""
        await self._quietly("message", command, self._message)

    @workflow.signal(name="checkpoint", description='Pause at a checkpoint: {"reason": "…"}.')
    async def checkpoint_signal(self, command: Pause) -> None:
        """Pause by signal."""
        await self._quietly("checkpoint", command, self._checkpoint)

    @workflow.signal(name="resume", description='Go on: {}, or {"message": "…"}.')
    async def resume_signal(self, command: Resume) -> None:
        """Resume by signal."""
        await self._quietly("resume", command, self._resume)

    @workflow.signal(name="cancel", description="Stop the active run: {}.")
    async def cancel_signal(self, command: Cancel) -> None:
        """Cancel by signal."""
        await self._quietly("cancel", command, self._cancel)

    @workflow.signal(name="end", description="End the session: {}.")
    async def end_signal(self, command: Command) -> None:
        """End by signal."""
        await self._quietly("end", command, self._end)

    @workflow.signal(name=PAUSE_SIGNAL, description="A subagent asks for a pause: internal.")
    async def subagent_pause(self, ask: SubagentPause) -> None:
        """A subagent made a checkpoint: the whole session pauses."""
        await self.core.pause_for(ask)

    @workflow.signal(description="A newer build is there: move to it between two steps. {}")
    def rollover(self) -> None:
        """Wakes a session that sleeps; the task that this makes shows it the newer build."""

    @workflow.query
    def state(self) -> str:
        """The session's state."""
        return self.core.carried.state

    def _check(self, command: Command, action: Action) -> None:
        if self.core.loaded and command.command_id not in self.core.carried.answers:
            self.core.check(action)

    async def _once(self, command: C, act: Callable[[C], Awaitable[Answer]]) -> Answer:
        core = self.core
        await workflow.wait_condition(lambda: core.loaded)
        async with core.lock:
            known = core.carried.answers.get(command.command_id) if command.command_id else None
            if known is not None:
                return known
            try:
                return core.remember(command.command_id, await act(command))
            except ApplicationError as error:
                if not await core.failed_by(error):
                    async with core.damage_fails():
                        await core.realign()
                raise

    async def _quietly(self, name: str, command: C, act: Callable[[C], Awaitable[Answer]]) -> None:
        try:
            await self._once(command, act)
        except ApplicationError as error:
            refusal = RefusalStep(session_id=self.core.id, command=name, reason=error.message)
            await steps.record_refusal(refusal)

    async def _message(self, command: NewMessage) -> Answer:
        return await take_message(self.core, command)

    async def _retry(self, command: Retry) -> Answer:
        return await retry_run(self.core, command)

    async def _checkpoint(self, command: Pause) -> Answer:
        core = self.core
        core.check(Action.PAUSE)
        step = PauseStep(
            session_id=core.id,
            checkpoint_id=command.checkpoint_id or fresh_id(),
            created_by="operator",
            reason=command.reason,
            run_id=core.run.run_id if core.run is not None else None,
        )
        await core.pause_at(step)
        return Answer(
            state=core.state, run_id=step.run_id, checkpoint_id=core.carried.checkpoint_id
        )

    async def _resume(self, command: Resume) -> Answer:
        return await resume(self.core, command)

    async def _discard(self, command: Command) -> Answer:
        core = self.core
        core.check(Action.DISCARD)
        user = command.user_id or core.carried.operator
        await steps.discard_queued(QueueStep(session_id=core.id, user_id=user))
        core.drop()
        core.enter(State.IDLE)
        return Answer(state=core.state)

    async def _cancel(self, command: Cancel) -> Answer:
        core = self.core
        run = core.run
        active = run is not None and core.state in (State.RUNNING, State.PAUSED)
        if not active or run is None or command.run_id not in (None, "", run.run_id):
            raise refused(Conflict("that run is not active", {"state": core.state.value}))
        core.halt(run, command.user_id or core.carried.operator)
        return Answer(state=core.state, run_id=run.run_id)

    async def _rollback(self, command: RollBack) -> Answer:
        return await roll_back(self.core, command)

    async def _move(self, command: Move) -> Answer:
        return await move_host(self.core, command)

    async def _end(self, command: Command) -> Answer:
        core = self.core
        core.check(Action.END)
        user = command.user_id or core.carried.operator
        await steps.end_session(EndStep(session_id=core.id, user_id=user))
        core.drop()
        core.enter(State.ENDED)
        core.kill_later(None)
        return Answer(state=core.state)

    async def _reopen(self, command: Command) -> Answer:
        core = self.core
        core.check(Action.REOPEN)
        user = command.user_id or core.carried.operator
        await steps.reopen_session(EndStep(session_id=core.id, user_id=user))
        core.enter(State.IDLE)
        return Answer(state=core.state)

    async def _compact(self, command: Compact) -> Answer:
        core = self.core
        if core.state is not State.IDLE:
            words = f"cannot compact while {core.state}"
            raise refused(Conflict(words, {"state": core.state.value}))
        own_run = workflow.patched(MANUAL_COMPACTION_IS_A_RUN)
        step = CompactStep(
            session_id=core.id,
            compaction_id=command.compaction_id or fresh_id(),
            trigger="operator_manual",
            run_id=fresh_id() if own_run else None,
            user_id=command.user_id or core.carried.operator,
            agent_path=command.agent_path,
            strategy=command.strategy,
            focus_id=command.focus_id,
        )
        done = await compact_by_hand(step)
        return Answer(state=core.state, run_id=step.run_id, compaction_id=done.compaction_id)
