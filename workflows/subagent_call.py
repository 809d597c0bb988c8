"""A subagent call: a child workflow with the same loop."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, is_cancelled_exception

from domain.steps import CloseToolStep, PendingCall
from domain.subagent_steps import SubagentStart
from domain.wire import SUBAGENT_WORKFLOW
from workflows import steps
from workflows.ids import fresh_id


async def run_subagent(
    session_id: str, run_id: str, call: PendingCall, *, parent_path: str
) -> None:
    """Start the child and wait for it; it closes the call with its own answer."""
    start = SubagentStart(
        session_id=session_id,
        run_id=run_id,
        tool_call_id=call.id,
        name=call.subagent or "",
        parent_path=parent_path,
        invocation_id=fresh_id(),
    )
    try:
        await workflow.execute_child_workflow(
            SUBAGENT_WORKFLOW,
            start,
            id=f"{session_id}/{start.invocation_id}",
            static_summary=call.summary[:200],
            result_type=str,
        )
    except ChildWorkflowError as error:
        if is_cancelled_exception(error):
            raise
        text = f"The subagent {start.name} failed: {error.cause or error}"
        closing = CloseToolStep(session_id=session_id, tool_call_id=call.id, text=text, failed=True)
        await steps.close_tool_call(closing, bool)
