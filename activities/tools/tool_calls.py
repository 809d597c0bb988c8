"""One tool call: checked, made, and closed with its result in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeats import beating
from activities.refusals import answering
from activities.sessions import CRASHED, CRASHED_WORDS
from activities.tools.shell import Shell
from holdfast.agent.conversation import INTERRUPTED, ToolCall
from holdfast.agent.tools.arguments import problem_with
from holdfast.agent.tools.files import run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import BY_NAME, refusal_at_dispatch
from holdfast.domain.events import SessionCrashRecovered
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.domain.steps import ToolResult, ToolStep
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.log import events
from holdfast.storage.projects import projects
from holdfast.storage.sessions import messages, sessions, tool_calls
from holdfast.terminal.errors import TerminalError

MODEL_BYTES_MAX = 32 * 1024
# A shell keeps the last 32 KiB itself; what JSON adds to them must not cut its end and its code.
SHELL_BYTES_MAX = 2 * MODEL_BYTES_MAX
CHANGES_FILES = frozenset({"shell", "write_file", "edit_file"})
LOOKS = frozenset({"read_file", "list_files", "grep"})
FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "list_files", "grep"})


@dataclass(frozen=True)
class ToolRequest:
    """A call with everything it runs in."""

    call: ToolCallRow
    session: SessionRow
    project_file: ProjectFile
    spec: AgentSpec
    invocation_id: str | None
    repeated: bool

    @property
    def root(self) -> bool:
        """Whether the root agent asked."""
        return self.call.caller == "primary"


Runner = Callable[[ToolRequest], Awaitable[ToolOutcome]]


class ToolActivities:
    """Calls of tools. `more` adds tools that need other parts, by name."""

    def __init__(
        self,
        store: OpenStore,
        shell: Shell,
        more: Mapping[str, Runner],
        before_change: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self.store = store
        self.shell = shell
        self._before_change = before_change
        self.runners: dict[str, Runner] = {**more, "shell": self._shell}
        self.runners.update(dict.fromkeys(FILE_TOOLS, self._file))

    @activity.defn(name="call_tool")
    @answering
    async def call_tool(self, step: ToolStep) -> ToolResult:
        """One tool call. Safe to repeat: a closed one is not made again, a shell is attached to."""
        request = await self._request(step)
        if request.call.state not in tool_calls.OPEN:
            failed = request.call.state == "failed"
            return ToolResult(failed=failed, exceeded=_exceeded(request.call.output))
        if request.repeated and request.project_file.on_crash == "fail":
            raise ApplicationError(CRASHED_WORDS, type=CRASHED, non_retryable=True)
        try:
            async with beating():
                if self._before_change is not None and request.call.tool_name in CHANGES_FILES:
                    await self._before_change(step.session_id, step.run_id)
                outcome = await self._outcome(request)
        except TerminalError as error:
            await self.store.awrite(lambda db: tool_calls.release(db, request.call.id))
            raise ApplicationError(str(error), type="terminal_unavailable") from error
        return await self._close(request, outcome)

    async def _request(self, step: ToolStep) -> ToolRequest:
        """Take the call. One that only looks needs no note of it: it may be made again."""
        if step.tool_name in LOOKS and activity.info().attempt == 1:
            return await self.store.aread(lambda db: _look_up(db, step))
        return await self.store.awrite(lambda db: _start(db, step))

    async def _outcome(self, request: ToolRequest) -> ToolOutcome:
        call, spec = request.call, BY_NAME.get(request.call.tool_name)
        refusal = refusal_at_dispatch(
            call.tool_name,
            request.spec.tools,
            root=request.root,
            has_subagents=bool(request.spec.subagents),
            bound_issue=request.session.bound_issue is not None,
            remembers=request.project_file.remembering.enabled,
        )
        if refusal is not None or spec is None:
            return ToolOutcome({"error": refusal or "no such tool"}, is_error=True)
        invalid = call.input.get("invalid_arguments")
        asked = ToolCall(call.provider_call_id, call.tool_name, call.input, invalid)
        problem = problem_with(spec, asked)
        if problem is not None:
            return ToolOutcome({"error": problem}, is_error=True)
        if request.repeated and not spec.repeat_safe:
            return ToolOutcome({"error": INTERRUPTED}, is_error=True)
        runner = self.runners.get(call.tool_name)
        if runner is None:
            words = f"{call.tool_name} cannot be used here: {call.input}"
            return ToolOutcome({"error": words[:500]}, is_error=True)
        return await runner(request)

    async def _file(self, request: ToolRequest) -> ToolOutcome:
        folder = Path(request.session.working_directory)
        call = request.call
        return await _in_thread(run_file_tool, call.tool_name, call.input, folder)

    async def _shell(self, request: ToolRequest) -> ToolOutcome:
        return await self.shell.run(request.call, request.session, request.spec)

    async def _close(self, request: ToolRequest, outcome: ToolOutcome) -> ToolResult:
        text, blob = outcome.text, None
        # A shell keeps its whole output itself; the row must name it, or no purge would find it.
        reference = outcome.output.get("output_ref") if isinstance(outcome.output, dict) else None
        most = SHELL_BYTES_MAX if request.call.tool_name == "shell" else MODEL_BYTES_MAX
        if len(text.encode("utf-8", "surrogatepass")) > most:
            blob = self.store.blobs.put(text.encode("utf-8", "surrogatepass"), "text/plain")
            text = _cut(text, blob.id)
        output: Any = outcome.output if blob is None else {"cut": text}

        def close(db: Db) -> ToolResult:
            nonlocal reference
            if blob is not None:
                reference = blobs.commit(db, blob)
            tool_calls.close(
                db,
                request.call,
                text=text,
                output=output,
                failed=outcome.is_error,
                output_ref=reference,
                invocation_id=request.invocation_id,
            )
            return ToolResult(failed=outcome.is_error, exceeded=_exceeded(outcome.output))

        return await self.store.awrite(close)


def _start(db: Db, step: ToolStep) -> ToolRequest:
    call = tool_calls.start(db, step.tool_call_id)
    # A call that only looks leaves no note when it begins, so the attempt is what tells.
    lost = call.state in tool_calls.OPEN and step.tool_name in LOOKS
    request = _with_session(db, step, call, repeated=lost or call.state == "running")
    if request.repeated:
        policy = request.project_file.on_crash
        recovered = SessionCrashRecovered(
            session_id=step.session_id, failed_run_id=step.run_id, policy=policy
        )
        events.append(db, step.session_id, recovered, run_id=step.run_id)
    return request


def _look_up(db: Db, step: ToolStep) -> ToolRequest:
    call = tool_calls.find(db, step.tool_call_id)
    assert call is not None, "a tool call is stored before it is made"
    return _with_session(db, step, call, repeated=call.state == "running")


def _with_session(db: Db, step: ToolStep, call: ToolCallRow, *, repeated: bool) -> ToolRequest:
    session = sessions.get(db, step.session_id)
    project_file = projects.file_by_hash(db, session.dsl_hash)
    asked = messages.find(db, call.message_id) if call.message_id else None
    return ToolRequest(
        call=call,
        session=session,
        project_file=project_file,
        spec=project_file.agent(call.caller),
        invocation_id=asked.invocation_id if asked is not None else None,
        repeated=repeated,
    )


def _exceeded(output: Any) -> str | None:
    """Which limit of its cage a process ran into: K-137, K-138."""
    reason = output.get("reason") if isinstance(output, dict) else None
    return {"walltime_exceeded": "walltime", "memory_exceeded": "memory"}.get(str(reason))


def _cut(text: str, blob_id: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    kept = raw[:MODEL_BYTES_MAX].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(raw)} bytes in all, kept whole as blob {blob_id}]"


async def _in_thread(
    tool: Callable[[str, dict[str, Any], Path], ToolOutcome],
    name: str,
    arguments: dict[str, Any],
    folder: Path,
) -> ToolOutcome:
    return await asyncio.to_thread(tool, name, arguments, folder)
