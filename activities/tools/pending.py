"""What a run still has to do, read from the database: for a loop that must begin anew."""

from __future__ import annotations

from activities.tools.requests import asked
from holdfast.agent.tools.arguments import Arguments
from holdfast.agent.tools.offering import enabled
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.specs import BY_NAME, SubagentArguments
from holdfast.agent.tools.summaries import summary
from holdfast.domain.permissions.rules import EVERY_TOOL
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.domain.steps import PendingCall
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Run, SessionRow, ToolCallRow
from holdfast.storage.sessions import messages, tool_calls


def as_pending(call: ToolCallRow, project_file: ProjectFile) -> PendingCall:
    """A stored call as the loop sees it.

    A `checkpoint` or `subagent` that the agent may not make, or not so, is left to the dispatch,
    which tells the model why.
    """
    spec = project_file.agent(call.caller)
    tool, arguments = BY_NAME.get(call.tool_name), _arguments(call, spec)
    name = arguments.name if isinstance(arguments, SubagentArguments) else None
    return PendingCall(
        id=call.id,
        name="unknown" if arguments is None else call.tool_name,
        summary=summary(call.tool_name, call.input),
        alone=tool is None or not tool.parallel,
        subagent=name if name in spec.subagents else None,
        on_host=tool is not None and tool.on_host,
        guarded=name is not None and _is_guarded(call, project_file),
    )


def _is_guarded(call: ToolCallRow, project_file: ProjectFile) -> bool:
    """Whether any rule is about calls of subagents, which the workflow carries out itself."""
    kinds = (EVERY_TOOL, call.tool_name, BY_NAME[call.tool_name].kind.value)
    return any(rule.tool in kinds for rule in project_file.rules(call.caller))


def _arguments(call: ToolCallRow, spec: AgentSpec) -> Arguments | None:
    """The call's arguments, or None if the agent may not make it, or not so."""
    tool = BY_NAME.get(call.tool_name)
    if tool is None or not enabled(spec.tools, call.tool_name):
        return None
    try:
        fitting: Arguments = tool.parse(asked(call))
    except ToolProblem:
        return None
    return fitting


def pending_calls(
    db: Db,
    session: SessionRow,
    run: Run | None,
    project_file: ProjectFile,
    *,
    agent_path: str = "primary",
    invocation_id: str | None = None,
) -> tuple[list[PendingCall], bool]:
    """The open calls of the last answer, and whether that answer was the last one of the run."""
    if run is None:
        return [], False
    seen = messages.history(db, session.id, agent_path=agent_path, invocation_id=invocation_id)
    own = [message for message in seen if message.run_id == run.id]
    answers = [
        message
        for message in own
        if message.role in ("primary", "subagent") and not message.meta.get("partial")
    ]
    if not answers:
        return [], False
    last = answers[-1]
    open_calls = tool_calls.open_of_message(db, last.id)
    later = any(message.seq > last.seq for message in own)
    answered = not last.tool_calls and not later
    return [as_pending(call, project_file) for call in open_calls], answered
