"""The session's own state and the driver of its runs; handlers ask, this acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from holdfast.domain.checkpoint_steps import PauseStep
from holdfast.domain.commands import Answer
from holdfast.domain.compaction_steps import CompactStep
from holdfast.domain.errors import Refusal
from holdfast.domain.lifecycle import OVER, Action, State, next_state
from holdfast.domain.session_start import Carried, RunProgress
from holdfast.domain.steps import (
    AdmittedRun,
    CloseToolStep,
    FinishStep,
    LoadStep,
    NextStep,
    PendingCall,
    ProcessesStep,
    SteerStep,
)
from holdfast.domain.subagent_steps import CAGE_SPAWN_FAILED, SUBAGENT_LIMIT, SubagentPause
from workflows import loading, steps
from workflows.agent_loop import RESUMED, AgentLoop, Ending, Host
from workflows.approvals import Approvals
from workflows.background import Background, failure_logged, kill_processes, save_tree
from workflows.damage import is_damage, is_damage_met_elsewhere, store_failure
from workflows.gate import Gate
from workflows.ids import fresh_id
from workflows.loading import TITLE
from workflows.placement import Placement
from workflows.refusals import refused
from workflows.subagent_call import Children

ANSWERS_MAX = 200
STATE = SearchAttributeKey.for_keyword("SessionState")


@dataclass(frozen=True)
class Stop:
    """Somebody cancels this run."""

    run_id: str
    user_id: str


class SessionCore(Host):
    """What a session knows and how it drives its run."""

    def __init__(self, session_id: str, carried: Carried | None) -> None:
        self.id = session_id
        self.carried = carried or Carried(state="", project_id="", operator="", title="")
        self.lock = asyncio.Lock()
        self.stop: Stop | None = None
        self.rolling = False
        self._task: asyncio.Task[Ending] | None = None
        self.background = Background()
        self.gate = Gate(lambda: self.state is State.RUNNING)
        self.children = Children(session_id)
        self.placement = Placement(session_id, self.carried.host)
        self.approvals = Approvals(session_id)

    @property
    def loaded(self) -> bool:
        """Whether the state is known."""
        return self.carried.state != ""

    @property
    def state(self) -> State:
        """The session's state, as the database has it too."""
        return State(self.carried.state)

    @property
    def run(self) -> RunProgress | None:
        """The active run."""
        return self.carried.run

    def check(self, action: Action) -> None:
        """Refuse what the table refuses."""
        try:
            next_state(self.state, action)
        except Refusal as refusal:
            raise refused(refusal) from refusal

    def enter(self, state: str) -> None:
        """Take over the state that the database has moved to, and show it."""
        before, self.carried.state = self.carried.state, state
        if before != state:
            workflow.upsert_search_attributes([STATE.value_set(state)])
            self.tell_children()
        self.describe()

    def describe(self) -> None:
        """What the Temporal UI shows of the session."""
        lines = [f"**{self.carried.title or 'untitled'}**", f"- state: `{self.carried.state}`"]
        if self.run is not None:
            lines.append(f"- run: `{self.run.run_id}`, step {self.run.step + 1}")
            lines += [f"- {call.summary}" for call in self.run.pending[:5]]
        if self.carried.checkpoint_id:
            lines.append(f"- checkpoint: `{self.carried.checkpoint_id}`")
        workflow.set_current_details("\n".join(lines))

    def remember(self, command_id: str, answer: Answer) -> Answer:
        """Keep the answer for a repeated command; the oldest goes first."""
        if command_id:
            answers = self.carried.answers
            answers[command_id] = answer
            while len(answers) > ANSWERS_MAX:
                del answers[next(iter(answers))]
        return answer

    async def load(self) -> None:
        """Become what the database says, after a start or a lost history."""
        async with self.damage_fails():
            await loading.load(self)

    async def realign(self) -> None:
        """Become what the database says, where it says something else."""
        await loading.realign(self)

    def begin(self, admitted: AdmittedRun) -> None:
        """Take over the run of a message, running or waiting for a slot."""
        if admitted.state in (State.RUNNING, State.QUEUED):
            self.carried.run = RunProgress(run_id=admitted.run_id, max_steps=admitted.max_steps)
        self.enter(admitted.state)

    async def begin_next(self) -> None:
        """Begin a run with the message that waits first; whoever calls holds the lock."""
        if self.state is not State.IDLE or not self.carried.waiting:
            return
        self.carried.waiting = False
        done = await steps.admit_next(NextStep(session_id=self.id, run_id=fresh_id()))
        if done.run is not None:
            self.carried.waiting, self.carried.steered = True, done.steered
            self.begin(done.run)
            if done.interrupted and self.run is not None:
                self.halt(self.run, self.carried.operator)

    async def steers(self, progress: RunProgress) -> bool:
        """Say in the run what the operator said meanwhile; whether there was a look for it."""
        if not self.carried.steered:
            return False
        self.carried.steered = False
        step = SteerStep(session_id=self.id, run_id=progress.run_id)
        # Said after the last answer, the words want another one; the database knows the order.
        progress.answered = (await steps.steer_run(step)).answered and progress.answered
        return True

    def halt(self, run: RunProgress, user_id: str) -> None:
        """Stop the loop; the driver then closes the run as cancelled."""
        self.stop = Stop(run.run_id, user_id)
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """Forget a run that a step has closed; its loop stops, whatever begins meanwhile."""
        if self._task is not None:
            self._task.cancel()
        self.stop = self.carried.run = self.carried.checkpoint_id = None
        self.carried.steered = False

    async def drive(self) -> None:
        """Run the active run until it ends, is stopped, or the history must roll over."""
        run = self.run
        assert run is not None, "only an active run is driven"
        self.describe()
        self.gate = Gate(
            lambda: self.state is State.RUNNING,
            lambda: self.run is not run or self._stopped(run),
        )
        loop = AgentLoop(
            session_id=self.id,
            progress=run,
            gate=self.gate,
            host=self,
            placement=self.placement,
            futile_compactions=self.carried.futile_compactions,
        )
        ending, failure = await self._watch(loop)
        self.carried.futile_compactions = loop.futile_compactions
        if ending is Ending.ROLL:
            self.rolling = True
        elif ending is Ending.REVIEW:
            await self.reload()
            self.background.start(save_tree(self.placement, self.carried.checkpoint_id))
        else:
            await self._end_run(run, failure)

    def _stopped(self, run: RunProgress) -> bool:
        return self.stop is not None and self.stop.run_id == run.run_id

    async def _watch(self, loop: AgentLoop) -> tuple[Ending | None, ApplicationError | None]:
        if self._stopped(loop.progress):
            return None, None
        self._task = asyncio.create_task(loop.run())
        try:
            return await self._task, None
        except BaseException as error:
            gone = self.run is not loop.progress
            if is_cancelled_exception(error) and (gone or self._stopped(loop.progress)):
                return None, None
            if isinstance(error, ApplicationError):
                return None, error
            if isinstance(error, Exception) and not is_cancelled_exception(error):
                return None, ApplicationError(str(error), type="internal")
            raise
        finally:
            self._task = None

    async def _end_run(self, run: RunProgress, failure: ApplicationError | None) -> None:
        """Close the run, unless a rollback, a resume or an end has closed it already."""
        while self.run is run:
            if failure is None and not self._stopped(run):
                await workflow.wait_condition(lambda: self._may_finish(run))
            async with self.lock, self.damage_fails():
                stopped = self._stopped(run)
                if self.run is not run or self.state not in (State.RUNNING, State.PAUSED):
                    return
                if failure is None and not stopped and self.state is State.PAUSED:
                    continue
                if failure is None and not stopped and self.carried.steered:
                    return  # words came after its last answer: it goes on
                stop, self.stop = self.stop if stopped else None, None
                if failure is not None and is_damage(failure):
                    await self.fail(failure)
                else:
                    await self._finish(run, failure, stop)

    def _may_finish(self, run: RunProgress) -> bool:
        return self.state is not State.PAUSED or self._stopped(run) or self.run is not run

    async def _finish(
        self, run: RunProgress, failure: ApplicationError | None, stop: Stop | None
    ) -> None:
        state = "cancelled" if stop is not None else "failed" if failure is not None else "done"
        step = FinishStep(
            session_id=self.id,
            run_id=run.run_id,
            state=state,
            trigger=f"run.{state}",
            user_id=stop.user_id if stop is not None else "",
            error_code=failure.type if failure is not None and stop is None else None,
            error_message=failure.message if failure is not None and stop is None else None,
        )
        done = await steps.finish_run(step)
        self.carried.run = self.carried.checkpoint_id = None
        self.carried.steered = False
        self.carried.compaction_due = True
        self.retitle(done.title)
        self.enter(done.state)
        if state != "done":
            self.kill_later(run.run_id)

    async def fail(self, failure: ApplicationError) -> None:
        """What the session stands on is damaged: it cannot go on, and says why (K-024, K-139)."""
        await store_failure(self.id, failure)
        self.drop()
        self.enter(State.FAILED)
        self.kill_later(None)

    def retitle(self, title: str) -> None:
        """Show a new title."""
        if title and title != self.carried.title:
            self.carried.title = title
            workflow.upsert_search_attributes([TITLE.value_set(title[:200])])

    async def reload(self) -> None:
        """Take the state from the database, after a step that moved it by itself."""
        async with self.lock, self.damage_fails():
            found = await steps.load_session(LoadStep(session_id=self.id))
            self.carried.run = None
            self.carried.checkpoint_id = found.checkpoint_id
            self.enter(found.state)

    async def pause(self, created_by: str, *, reason: str = "", call: PendingCall | None) -> None:
        """Make a checkpoint for the model, a budget or a compaction, and wait until it goes on."""
        async with self.lock:
            if self.state is State.RUNNING:
                step = PauseStep(
                    session_id=self.id,
                    checkpoint_id=fresh_id(),
                    created_by=created_by,
                    reason=reason,
                    run_id=self.run.run_id if self.run is not None else None,
                    tool_call_id=call.id if call is not None else None,
                )
                await self.pause_at(step)
        await self.gate.passed()
        if call is not None:
            closing = CloseToolStep(session_id=self.id, tool_call_id=call.id, text=RESUMED)
            await steps.close_tool_call(closing)

    async def pause_at(self, step: PauseStep) -> None:
        """Pause at once; processes are stopped right after."""
        try:
            paused = await steps.pause_session(step)
        except ApplicationError:
            await self.realign()
            if self.state is not State.PAUSED:
                raise
        else:
            if paused.state != State.PAUSED:
                return  # a workflow that was lost paused for this call, and it was resumed since
            self.carried.checkpoint_id = paused.checkpoint_id
            self.enter(State.PAUSED)
        processes = ProcessesStep(session_id=self.id, run_id=step.run_id)
        # It is paused by now: trouble with its processes must not fail it or the answer.
        with failure_logged("processes could not be suspended"):
            await self.placement.processes(
                steps.suspend_processes, processes, summary="suspend processes"
            )
        self.background.start(save_tree(self.placement, self.carried.checkpoint_id))

    async def subagent(self, call: PendingCall) -> None:
        """See a subagent call through; one that was killed alone takes the run with it (K-137)."""
        assert self.run is not None, "subagents live inside a run"
        result = await self.children.call(self.run.run_id, call, parent_path="primary")
        if result.cage_failure is not None:
            raise ApplicationError(result.cage_failure, type=CAGE_SPAWN_FAILED)
        if result.limit_exceeded is not None and self.children.active == 0:
            raise ApplicationError(result.limit_exceeded, type=SUBAGENT_LIMIT)

    async def pause_for(self, ask: SubagentPause) -> None:
        """Pause because a subagent asks for it, and answer it in any case."""
        async with self.lock:
            if self.state is State.RUNNING and self.run is not None:
                step = PauseStep(
                    session_id=self.id,
                    checkpoint_id=fresh_id(),
                    created_by=ask.created_by,
                    reason=ask.reason,
                    run_id=self.run.run_id,
                    tool_call_id=ask.tool_call_id,
                )
                with failure_logged("a subagent's pause failed"):
                    async with self.damage_fails():
                        await self.pause_at(step)
        self.tell_children(ask.request_id)

    def tell_children(self, request_id: str = "") -> None:
        """Let subagents stop and go on with the session."""
        gate = self.children.turn(is_open=self.state is State.RUNNING, request_id=request_id)
        if self.children.active:
            self.background.start(self.children.spread(gate))

    async def compact_on_schedule(self) -> None:
        """Make room while nobody waits for it; trouble with it is no trouble of the session."""
        async with self.lock:
            self.carried.compaction_due = False
            if self.state is not State.IDLE:
                return
            step = CompactStep(session_id=self.id, compaction_id=fresh_id(), trigger="scheduled")
            with failure_logged("no scheduled compaction"):
                async with self.damage_fails():
                    await steps.compact_context(step, summary="compact: scheduled")

    @asynccontextmanager
    async def damage_fails(self) -> AsyncIterator[None]:
        """Fail the session when a step in here meets damage of the store; the step ends quietly."""
        try:
            yield
        except ApplicationError as error:
            if not await self.failed_by(error):
                raise

    async def failed_by(self, trouble: ApplicationError) -> bool:
        """Fail the session if the trouble is damage of the store; whether it was."""
        damaged = self.carried.state not in OVER and is_damage_met_elsewhere(trouble)
        if damaged:
            await self.fail(trouble)
        return damaged

    def kill_later(self, run_id: str | None) -> None:
        """Kill what the run left behind, without keeping the session busy."""
        self.background.start(kill_processes(self.placement, run_id))
