"""One project's memory follows its sources: rounds until nobody asks for another."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as StepTimedOut

from holdfast.domain.errors import NotFound
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import (
    ASK,
    SYNC,
    MemoryAnswer,
    MemoryPlaceStep,
    MemoryRequest,
    MemoryStart,
    MemorySyncStep,
)
from holdfast.domain.wire import MEMORY_WORKFLOW
from workflows import steps

# However often it is asked, a history stays small: then the next run goes on.
ROUNDS_MAX = 100
ON_ITS_HOST = "memory-on-its-host"
ASK_WITHIN = timedelta(seconds=10)
NO_END = "the memory's index could not be brought up to date: its worker died again and again"


@workflow.defn(name=MEMORY_WORKFLOW)
class MemorySyncWorkflow:
    """Runs while there is something to do. A request during a round leads to one more round.

    Requests are counted, not kept: all that came before a round begins are answered by it.
    """

    @workflow.init
    def __init__(self, start: MemoryStart) -> None:
        self._project_id = start.project_id
        self._force = start.force
        self._asked = 1
        self._answered = 0
        self._rounds = 0
        self._leaving = False
        self._report: SyncReport | None = None
        self._failure: ApplicationError | None = None

    @workflow.run
    async def run(self, start: MemoryStart) -> SyncReport | None:
        """Every round that was asked for; the last one's report."""
        while self._answered < self._asked:
            await self._round()
            if self._rounds >= ROUNDS_MAX and self._answered < self._asked:
                # Those who wait are told that it goes on.
                self._leaving = True
            await workflow.wait_condition(self._heard)
            if self._leaving:
                going_on = MemoryStart(project_id=self._project_id, force=self._force)
                workflow.continue_as_new(going_on)
        if self._failure is not None:
            raise self._failure
        return self._report

    @workflow.signal(name=ASK, description="Look at the sources again.")
    def ask(self, request: MemoryRequest) -> None:
        """Nobody waits for this one."""
        self._note(request)

    @workflow.update(name=SYNC, description="Look at the sources again, and tell when it is done.")
    async def sync(self, request: MemoryRequest) -> MemoryAnswer:
        """The report of a round that began after this request."""
        number = self._note(request)
        await workflow.wait_condition(lambda: self._answered >= number or self._leaving)
        if self._answered < number:
            return MemoryAnswer()
        if self._failure is not None:
            raise self._failure
        return MemoryAnswer(report=self._report)

    def _note(self, request: MemoryRequest) -> int:
        self._asked += 1
        self._force = self._force or request.force
        return self._asked

    async def _round(self) -> None:
        number, force = self._asked, self._force
        self._force = False
        self._rounds += 1
        step = MemorySyncStep(project_id=self._project_id, force=force)
        try:
            self._report = await self._synced(step)
            self._failure = None
        except ApplicationError as error:
            self._failure = error
        except StepTimedOut:
            self._failure = ApplicationError(NO_END, type="unavailable")
        self._answered = number

    async def _synced(self, step: MemorySyncStep) -> SyncReport:
        """The report of the first machine that is there and sees the project's files."""
        if not workflow.patched(ON_ITS_HOST):
            return await steps.sync_memory(step)
        asked = MemoryPlaceStep(project_id=self._project_id)
        queues = (await steps.place_memory(asked)).queues
        failure: ApplicationError | None = None
        for queue in queues:
            try:
                return await steps.sync_memory(step, task_queue=queue, start_within=ASK_WITHIN)
            except ApplicationError as error:
                if error.type != NotFound.code:
                    raise
                failure = error
            except StepTimedOut as error:
                if error.type != TimeoutType.SCHEDULE_TO_START:
                    raise
        if failure is not None:
            raise failure
        # They were there a moment ago: whoever comes next may do it.
        return await steps.sync_memory(step)

    def _heard(self) -> bool:
        """Whether there is another round to make, or nobody left who waits for an answer."""
        more = self._answered < self._asked and not self._leaving
        return more or workflow.all_handlers_finished()
