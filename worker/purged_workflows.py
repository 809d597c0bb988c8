"""Ends the workflows of purged sessions and takes them out of Temporal, titles and all."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import purged_workflows

log = structlog.get_logger()
EVERY_S = 2.0
AT_ONCE_MAX = 100
RUNS_MAX = 1_000
REASON = "the session was purged"


async def end_forever(client: Client, store: OpenStore) -> None:
    """Look for as long as the worker lives; what waits is in the database, not in here."""
    while True:
        ended = await end_purged(client, store)
        await asyncio.sleep(0 if ended == AT_ONCE_MAX else EVERY_S)


async def end_purged(client: Client, store: OpenStore) -> int:
    """One look; how many workflows are no more."""
    waiting = await store.aread(partial(purged_workflows.waiting, limit=AT_ONCE_MAX))
    for session_id in waiting:
        # An import may have brought the session back: then its workflow is not ours to end.
        if await store.aread(partial(purged_workflows.is_gone, session_id=session_id)):
            await _end(client, session_id)
        await store.awrite(partial(purged_workflows.drop, session_id=session_id))
    return len(waiting)


async def _end(client: Client, session_id: str) -> None:
    """Safe to repeat: what is gone already is passed over."""
    handle = client.get_workflow_handle(session_id)
    runs: set[tuple[str, str]] = set()
    try:
        runs.add((session_id, (await handle.describe()).run_id))
        await handle.terminate(reason=REASON)
    except RPCError as error:
        # It never began, or it closed by itself.
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    for workflow_id, run_id in runs | await _older_runs(client, session_id):
        await _delete(client, workflow_id, run_id)


async def _older_runs(client: Client, session_id: str) -> set[tuple[str, str]]:
    """Runs that this one continued, and those of subagents; as far as the service can say."""
    if not session_id.isalnum():
        return set()
    query = f"WorkflowId = '{session_id}' OR WorkflowId STARTS_WITH '{session_id}/'"
    try:
        return {(run.id, run.run_id) async for run in client.list_workflows(query, limit=RUNS_MAX)}
    except RPCError as error:
        log.info("purged_workflows.not_listed", session_id=session_id, reason=error.message[:200])
        return set()


async def _delete(client: Client, workflow_id: str, run_id: str) -> None:
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=execution
    )
    try:
        await client.workflow_service.delete_workflow_execution(request)
    except RPCError as error:
        # A service may not let us: the run is over, and goes when its retention is.
        log.info(
            "purged_workflows.not_deleted", workflow_id=workflow_id, reason=error.message[:200]
        )
