"""Asks a session's workflow: one update with a command id, sent again until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Refusal, Unavailable, refusal_from
from holdfast.domain.session_start import SessionStart
from holdfast.domain.wire import PASSING_STATUSES, TASK_TIMEOUT_S, UPDATE_LOST, WORKFLOW
from holdfast.settings.environment import Settings
from holdfast.storage.database.tables import SessionRow

if TYPE_CHECKING:
    from temporalio.client import Client

ANSWER_TIMEOUT_S = 15.0
# A compaction may wait a minute for its summary, and many files take their time to come back.
PATIENCE_S = {"compact": 100.0, "rollback": 60.0}
RETRY_MIN_S, RETRY_MAX_S = 0.05, 0.5
SUMMARY_CHARS_MAX = 120
NO_ANSWER = "the session did not answer in time; the same request may be repeated"


class Asks(Protocol):
    """What routes need of `Commands`; tests bring their own."""

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Ask, and wait for the answer."""


class WorkflowBroken(Exception):
    """The workflow answered with something that is no refusal: a defect of ours."""


class Commands:
    """The way to the workflows; connects with its first command."""

    def __init__(self, settings: Settings, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.answer_timeout_s = answer_timeout_s
        self._settings = settings
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Send `command` as the update `name` until it is answered: Refusal, or Unavailable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(self.answer_timeout_s, PATIENCE_S.get(name, 0.0))
        pause = RETRY_MIN_S
        while True:
            answer = await self._within(self._try(session, name, command), deadline)
            if answer is not None:
                return answer
            if loop.time() + pause >= deadline:
                raise Unavailable(NO_ANSWER)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)

    async def client(self) -> Client:
        """The connection to Temporal, which may come and go."""
        async with self._connecting:
            if self._client is None:
                self._client = await _connect(self._settings)
            return self._client

    async def _within(
        self, attempt: Coroutine[Any, Any, Answer | None], deadline: float
    ) -> Answer | None:
        """One attempt, or Unavailable. The client turns a cancellation into an error of its own,
        so `asyncio.timeout` around it would never end."""
        task = asyncio.create_task(attempt)
        try:
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait({task}, timeout=max(left, 0))
            if not task.done():
                raise Unavailable(NO_ANSWER)
            return task.result()
        finally:
            task.cancel()

    async def _try(self, session: SessionRow, name: str, command: Command) -> Answer | None:
        """One attempt; None when the same command may be sent again."""
        from temporalio.client import (  # noqa: PLC0415 - see _connect
            WorkflowUpdateFailedError,
            WorkflowUpdateRPCTimeoutOrCancelledError,
        )
        from temporalio.service import RPCError  # noqa: PLC0415

        try:
            client = await self.client()
            answer: Answer = await client.execute_update_with_start_workflow(
                name,
                command,
                start_workflow_operation=_start(self._settings, session),
                id=command.command_id,
                result_type=Answer,
            )
        except WorkflowUpdateFailedError as error:
            refusal = _refusal(error.cause)
            if refusal is None:
                return None
            raise refusal from error
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            # Also what the client makes of our own patience running out, which must be heard.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            return None
        except RPCError as error:
            if error.status.name not in PASSING_STATUSES:
                raise
            return None
        except RuntimeError:
            # The client could not connect: Temporal is being started or restarted.
            self._client = None
            return None
        return answer


def _refusal(cause: BaseException | None) -> Refusal | None:
    """The refusal behind a failed update; None when the update was lost and may be repeated."""
    from temporalio.exceptions import ApplicationError  # noqa: PLC0415

    if not isinstance(cause, ApplicationError):
        raise WorkflowBroken(str(cause)) from cause
    if cause.type == UPDATE_LOST:
        return None
    details: Any = cause.details[0] if cause.details else None
    if cause.type not in KNOWN_CODES:
        raise WorkflowBroken(f"{cause.type}: {cause.message}") from cause
    return refusal_from(cause.type, cause.message, details if isinstance(details, dict) else None)


def _codes(root: type[Refusal]) -> set[str]:
    return {root.code}.union(*(_codes(child) for child in root.__subclasses__()))


KNOWN_CODES = _codes(Refusal)


async def _connect(settings: Settings) -> Client:
    # temporalio takes most of a second to import; the API serves before it needs it.
    from temporalio.client import Client  # noqa: PLC0415

    from workflows.payloads import data_converter  # noqa: PLC0415

    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=data_converter,
        lazy=True,
    )


def _start(settings: Settings, session: SessionRow) -> Any:
    from temporalio.client import WithStartWorkflowOperation  # noqa: PLC0415
    from temporalio.common import (  # noqa: PLC0415
        SearchAttributeKey,
        SearchAttributePair,
        TypedSearchAttributes,
        WorkflowIDConflictPolicy,
        WorkflowIDReusePolicy,
    )

    values = {
        "SessionState": session.state,
        "Project": session.project_id,
        "Operator": session.created_by,
        "Title": session.title or "",
    }
    attributes = TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(key), value)
            for key, value in values.items()
        ]
    )
    return WithStartWorkflowOperation(
        WORKFLOW,
        SessionStart(session.id),
        id=session.id,
        task_queue=settings.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
        search_attributes=attributes,
        static_summary=(session.title or session.id)[:SUMMARY_CHARS_MAX],
    )
