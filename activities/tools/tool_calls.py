"""One tool call: checked, made, and closed with its result in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeats import beating
from activities.refusals import answering
from activities.sessions import CRASHED, CRASHED_WORDS
from activities.tools import gatekeeper
from activities.tools.requests import Tool, ToolRequest, asked
from holdfast.agent.conversation import INTERRUPTED
from holdfast.agent.tools.offering import refusal_at_dispatch
from holdfast.agent.tools.outcome import ToolOutcome, ToolProblem
from holdfast.agent.tools.specs import ALL, BY_NAME
from holdfast.agent.tools.tool_spec import OUTPUT_BYTES_MAX
from holdfast.domain.clock import now_ms
from holdfast.domain.events import SessionCrashRecovered
from holdfast.domain.permissions.approval_steps import Asked, CheckResult
from holdfast.domain.permissions.repetition import fingerprint
from holdfast.domain.permissions.rules import Effect
from holdfast.domain.steps import ToolResult, ToolStep
from holdfast.domain.tools import PROCESS_TOOLS, ToolKind
from holdfast.settings.config import Config
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.hosts import executions
from holdfast.storage.log import events
from holdfast.storage.projects import projects
from holdfast.storage.sessions import admission, messages, sessions, tool_calls
from holdfast.terminal.errors import BadCage, CageSpawnFailed, TerminalError
from holdfast.terminal.identity import Identity

READ_ONLY_TOOLS = frozenset(spec.name for spec in ALL if spec.read_only)
# A machine without cages refuses the call and no more: the model goes on with what it can read.
CAGE_REFUSALS = frozenset({BadCage.code, CageSpawnFailed.code})
ENDED_WORKERS = "This call ended its worker {} and is not tried again."
# So often a call that was answered looks for a slot of its session.
SLOT_LOOK_S = 0.5
CHANGING_TOOLS = frozenset(spec.name for spec in ALL if spec.changes_files)


class ToolActivities:
    """Calls of tools; `before_change` saves the files of a session before a call changes them."""

    def __init__(
        self,
        store: OpenStore,
        tools: Iterable[Tool],
        before_change: Callable[[str, str], Awaitable[None]] | None = None,
        cage_trouble: Callable[[], Awaitable[str | None]] | None = None,
        host: Callable[[], Awaitable[Identity]] | None = None,
        config: Callable[[], Config] = Config,
    ) -> None:
        self.store = store
        self.config = config
        self._host = host
        self._before_change = before_change
        self._cage_trouble = cage_trouble
        self._tools = {tool.spec.name: tool for tool in tools}

    @activity.defn(name="call_tool")
    @answering
    async def call_tool(self, step: ToolStep) -> ToolResult:
        """One tool call. Safe to repeat: a closed one is not made again, a shell is attached to."""
        try:
            request = await self._taken(step)
        except TerminalError as error:
            raise ApplicationError(str(error), type="terminal_unavailable") from error
        if request.call.state not in tool_calls.OPEN:
            failed = request.call.state == "failed"
            return result_of(request.call.output, failed=failed)
        if request.verdict.effect is Effect.ASK:
            return await self._ask(request, step)
        if request.verdict.effect is Effect.DENY:
            return await self._close(request, gatekeeper.refusal(request))
        if request.repeated and request.project_file.on_crash == "fail":
            raise ApplicationError(CRASHED_WORDS, type=CRASHED, non_retryable=True)
        spec = BY_NAME.get(request.call.tool_name)
        if spec is not None and request.deaths >= spec.deaths_max:
            times = "twice" if request.deaths == 2 else f"{request.deaths} times"
            return await self._close(request, _refused(ENDED_WORKERS.format(times)))
        try:
            async with beating():
                if self._before_change is not None and request.call.tool_name in CHANGING_TOOLS:
                    await self._before_change(step.session_id, step.run_id)
                outcome = await self._outcome(request)
        except TerminalError as error:
            await self.store.awrite(lambda db: tool_calls.release(db, request.call.id))
            raise ApplicationError(str(error), type="terminal_unavailable") from error
        except BaseException:
            # Stopped or failed, but alive: only the death of a worker leaves its attempt counted.
            forgiving = self.store.awrite(lambda db: tool_calls.forgive(db, request.call.id))
            await asyncio.shield(forgiving)
            raise
        return await self._close(request, outcome)

    @activity.defn(name="check_call")
    @answering
    async def check_call(self, step: ToolStep) -> CheckResult:
        """Whether the workflow may carry a call out itself. Safe to repeat: one that may not is
        closed once."""
        request = await self._taken(step, look_only=True)
        if request.call.state not in tool_calls.OPEN:
            return CheckResult()
        if request.verdict.effect is Effect.ASK:
            return CheckResult(asked=(await self._ask(request, step)).asked)
        if request.verdict.effect is Effect.DENY:
            await self._close(request, gatekeeper.refusal(request))
            return CheckResult()
        return CheckResult(allowed=True)

    async def _ask(self, request: ToolRequest, step: ToolStep) -> ToolResult:
        """Have the workflow wait for an operator's word; the call is not begun."""
        if not step.may_ask:
            return await self._close(request, gatekeeper.NOBODY_WAITS)
        approval = request.verdict.approval
        if approval is None:
            hours = self.config().approvals.expire_hours
            wanted = gatekeeper.approval_of(
                request,
                trouble=await self._trouble(request.call.tool_name),
                diff=await self._diff(request),
                expires_at=None if hours is None else now_ms() + round(hours * 3_600_000),
            )
            approval = await self.store.awrite(lambda db: gatekeeper.ask(db, request, wanted))
        if approval is None:
            return ToolResult(failed=True)
        return ToolResult(asked=Asked(approval_id=approval.id, expires_at=approval.expires_at))

    async def _diff(self, request: ToolRequest) -> str | None:
        tool = self._tools.get(request.call.tool_name)
        if tool is None or tool.diff is None:
            return None
        try:
            return await tool.diff(request, tool.spec.parse(asked(request.call)))
        except ToolProblem:
            return None  # the edit would fail, and the model be told why

    async def _taken(self, step: ToolStep, *, look_only: bool = False) -> ToolRequest:
        """Take the call, with a slot for its session where that waited without one."""
        trouble = await self._trouble(step.tool_name)
        request = await self._request(step, trouble, look_only=look_only)
        if not request.waits_for_slot:
            return request
        session_id, run_id = request.session.id, request.call.run_id
        async with beating():
            while True:
                if await self.store.awrite(lambda db: admission.take_slot(db, session_id, run_id)):
                    break
                await asyncio.sleep(SLOT_LOOK_S)
        request = await self._request(step, trouble, look_only=look_only)
        return replace(request, took_slot=True)

    async def _trouble(self, tool_name: str) -> str | None:
        """Why the machine of this worker can build no cage, for tools that need one."""
        if self._cage_trouble is None:
            return None
        if not gatekeeper.needs_a_cage(tool_name):
            return gatekeeper.NOT_LOOKED_AT
        return await self._cage_trouble()

    async def _request(
        self, step: ToolStep, trouble: str | None, *, look_only: bool
    ) -> ToolRequest:
        """Take the call. A read-only one needs no note of it: it may be made again."""
        first = step.tool_name in READ_ONLY_TOOLS and activity.info().attempt == 1
        if first or look_only:
            return await self.store.aread(lambda db: _look_up(db, step, trouble))
        claims = self._host is not None and step.tool_name in PROCESS_TOOLS
        host = await self._host() if claims and self._host is not None else None
        return await self.store.awrite(lambda db: _start(db, step, host, trouble))

    async def _outcome(self, request: ToolRequest) -> ToolOutcome:
        call = request.call
        refusal = refusal_at_dispatch(call.tool_name, request.caller)
        if refusal is not None:
            return _refused(refusal)
        spec = BY_NAME[call.tool_name]
        try:
            arguments = spec.parse(asked(call))
        except ToolProblem as problem:
            return _refused(str(problem))
        if request.repeated and not spec.repeat_safe:
            return _refused(INTERRUPTED)
        tool = self._tools.get(call.tool_name)
        if tool is None:
            return _refused(f"{call.tool_name} cannot be used here: {call.input}"[:500])
        trouble = await self._trouble_of_edits(request) if spec.kind is ToolKind.EDIT else None
        if trouble is not None:
            return _refused(trouble)
        return await tool.run(request, arguments)

    async def _trouble_of_edits(self, request: ToolRequest) -> str | None:
        """Why nothing may be written: an agent that must be caged, where no cage can be built."""
        if request.agent.cage == "disabled" or request.verdict.uncaged:
            return None
        if self._cage_trouble is None:
            return None
        return await self._cage_trouble()

    def _fingerprint(self, request: ToolRequest, outcome: ToolOutcome) -> str:
        """Equal for equal calls with equal results, for the guard against loops."""
        own = request.agent.stuck_guard and request.session.stuck_guard
        if not own or not self.config().limits.stuck_guard:
            return ""
        return fingerprint(request.call.tool_name, request.call.input, outcome.output)

    async def _close(self, request: ToolRequest, outcome: ToolOutcome) -> ToolResult:
        text, blob = outcome.text, None
        # A shell keeps its whole output itself; the row must name it, or no purge would find it.
        reference = outcome.output.get("output_ref") if isinstance(outcome.output, dict) else None
        spec = BY_NAME.get(request.call.tool_name)
        most = OUTPUT_BYTES_MAX if spec is None else spec.output_bytes_max
        if len(text.encode("utf-8", "surrogatepass")) > most:
            blob = self.store.blobs.put(text.encode("utf-8", "surrogatepass"), "text/plain")
            text = _cut(text, blob.id)
        output: Any = outcome.output if blob is None else {"cut": text}

        def close(db: Db) -> ToolResult:
            nonlocal reference
            if blob is not None:
                reference = blobs.commit(db, blob)
            closed = tool_calls.close(
                db,
                request.call,
                text=text,
                output=output,
                failed=outcome.is_error,
                diff=outcome.diff,
                output_ref=reference,
                invocation_id=request.invocation_id,
            )
            if closed is not None:
                gatekeeper.settle(db, request)
            if request.took_slot:
                admission.yield_slot(db, request.session.id, request.call.run_id)
            result = result_of(outcome.output, failed=outcome.is_error)
            return replace(result, fingerprint=self._fingerprint(request, outcome))

        return await self.store.awrite(close)


def _refused(words: str) -> ToolOutcome:
    return ToolOutcome({"error": words}, is_error=True)


def _start(db: Db, step: ToolStep, host: Identity | None, trouble: str | None) -> ToolRequest:
    known = _look_up(db, step, trouble)
    if known.verdict.effect is not Effect.ALLOW or known.waits_for_slot:
        return known
    call = tool_calls.start(db, step.tool_call_id)
    # A read-only call leaves no note when it begins: a second attempt is the sign of a lost one.
    lost = call.state in tool_calls.OPEN and step.tool_name in READ_ONLY_TOOLS
    repeated = lost or call.state == "running"
    deaths = call.attempt + lost
    request = replace(known, call=call, repeated=repeated, deaths=deaths)
    if request.repeated:
        policy = request.project_file.on_crash
        recovered = SessionCrashRecovered(
            session_id=step.session_id, failed_run_id=step.run_id, policy=policy
        )
        events.append(db, step.session_id, recovered, run_id=step.run_id)
    if host is not None and call.state in tool_calls.OPEN:
        claim = executions.claim(db, call.id, step.session_id, host.id, host.epoch)
        return replace(request, claim=claim)
    return request


def _look_up(db: Db, step: ToolStep, trouble: str | None) -> ToolRequest:
    """The call with its session, judged; one that was begun before has been allowed."""
    call = tool_calls.find(db, step.tool_call_id)
    assert call is not None, "a tool call is stored before it is made"
    request = _with_session(db, step, call)
    found = gatekeeper.verdict(db, request, trouble=trouble)
    if call.state == "running" and found.effect is not Effect.ALLOW:
        found = replace(found, effect=Effect.ALLOW)
    if found.uncaged and call.tool_name in PROCESS_TOOLS:
        uncaged = request.agent.model_copy(update={"cage": "disabled"})
        request = replace(request, agent=uncaged)
    return replace(request, verdict=found)


def _with_session(db: Db, step: ToolStep, call: ToolCallRow) -> ToolRequest:
    session = sessions.get(db, step.session_id)
    project_file = projects.file_of(db, session)
    asked = messages.find(db, call.message_id) if call.message_id else None
    return ToolRequest(
        call=call,
        session=session,
        project_file=project_file,
        agent=project_file.agent(call.caller),
        invocation_id=asked.invocation_id if asked is not None else None,
        repeated=call.state == "running",
    )


def result_of(output: Any, *, failed: bool) -> ToolResult:
    """What the workflow hears of a call; the words themselves stay in the database."""
    return ToolResult(failed=failed, exceeded=_exceeded(output), cage_failure=_cage_failure(output))


def _cage_failure(output: Any) -> str | None:
    """Why the cage of a process could not be set up: refused, or failed at its start (K-136)."""
    if not isinstance(output, dict):
        return None
    if output.get("code") in CAGE_REFUSALS:
        return str(output["error"])
    if output.get("reason") == CageSpawnFailed.code:
        return str(output["message"])
    return None


def _exceeded(output: Any) -> str | None:
    """Which limit of its cage a process ran into: K-137, K-138."""
    reason = output.get("reason") if isinstance(output, dict) else None
    return {"walltime_exceeded": "walltime", "memory_exceeded": "memory"}.get(str(reason))


def _cut(text: str, blob_id: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    kept = raw[:OUTPUT_BYTES_MAX].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(raw)} bytes in all, kept whole as blob {blob_id}]"
