"""An update of a workflow: sent with the workflow's start, again and again until it is answered."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.errors import refusal_from
from holdfast.domain.wire import PASSING_STATUSES, UPDATE_LOST
from holdfast.temporal.connection import Connection
from holdfast.temporal.starts import Start

RETRY_MIN_S, RETRY_MAX_S = 0.05, 0.5
T = TypeVar("T")


class Unanswered(Exception):
    """Nobody answered in time. `away`: Temporal could not be reached, so nobody may have heard."""

    def __init__(self, *, away: bool) -> None:
        super().__init__("Temporal is away" if away else "no answer in time")
        self.away = away


class WorkflowBroken(Exception):
    """The workflow answered with something that is no refusal: a defect of ours."""

    def __init__(self, cause: BaseException | None) -> None:
        # None when the workflow was ended from outside instead of answering.
        self.failure = cause if isinstance(cause, ApplicationError) else None
        super().__init__(str(cause))


@dataclass
class Update(Generic[T]):
    """One request to a workflow. Under the same `id` it does nothing twice, however often sent."""

    name: str
    argument: object
    id: str
    result_type: type[T]
    start: Start
    _away: bool = False

    async def answer(
        self, connection: Connection, *, within_s: float, away_max_s: float = math.inf
    ) -> T:
        """The answer, or the Refusal that it is; Unanswered when it takes longer than `within_s`,
        or Temporal cannot be reached for longer than `away_max_s`."""
        task = asyncio.create_task(self._repeat(connection, away_max_s))
        try:
            # The client turns a cancellation into an error of its own, so `asyncio.timeout` around
            # it would never end.
            await asyncio.wait({task}, timeout=within_s)
            if not task.done():
                raise Unanswered(away=self._away)
            return task.result()
        finally:
            task.cancel()

    async def _repeat(self, connection: Connection, away_max_s: float) -> T:
        loop, pause = asyncio.get_running_loop(), RETRY_MIN_S
        began = loop.time()
        while True:
            try:
                return await self._send(connection)
            except WorkflowUpdateFailedError as error:
                _raise_unless_lost(error)
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                # Also what the client makes of our own cancellation, which must be heard.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from None
            except RPCError as error:
                if error.status.name not in PASSING_STATUSES:
                    raise
                self._away = error.status is RPCStatusCode.UNAVAILABLE
            except RuntimeError:
                self._away = True  # the client could not connect: Temporal is being started
            if self._away and loop.time() - began > away_max_s:
                raise Unanswered(away=True)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)

    async def _send(self, connection: Connection) -> T:
        client = await connection.client()
        answer: T = await client.execute_update_with_start_workflow(
            self.name,
            self.argument,
            start_workflow_operation=self.start.with_update(),
            id=self.id,
            result_type=self.result_type,
        )
        return answer


def _raise_unless_lost(error: WorkflowUpdateFailedError) -> None:
    """The refusal behind a failed update; nothing when it was lost, and may be sent again."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        raise WorkflowBroken(cause) from error
    if cause.type == UPDATE_LOST:
        return
    details: Any = cause.details[0] if cause.details else None
    details = details if isinstance(details, dict) else None
    raise refusal_from(cause.type, cause.message, details) or WorkflowBroken(cause) from error
