"""Short steps of a subagent: begin and finish. Each is one transaction, safe to repeat."""

from __future__ import annotations

from temporalio import activity

from activities.refusals import answering
from holdfast.domain.errors import NotFound
from holdfast.domain.project_file import subagent_path
from holdfast.domain.subagent_steps import SubagentBegun, SubagentEnd, SubagentResult, SubagentStart
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SubagentInvocation
from holdfast.storage.projects import projects
from holdfast.storage.sessions import admission, invocations, messages, sessions, tool_calls

ANSWER_BYTES_MAX = 32 * 1024
NO_ANSWER = "(The subagent ended without an answer.)"


class SubagentActivities:
    """The beginning and the end of subagents."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    @activity.defn(name="begin_subagent")
    @answering
    async def begin_subagent(self, start: SubagentStart) -> SubagentBegun:
        """Take a place in the run and store the prompt; `busy` when there is no place."""
        return await self.store.awrite(lambda db: _begin(db, start))

    @activity.defn(name="finish_subagent")
    @answering
    async def finish_subagent(self, end: SubagentEnd) -> SubagentResult:
        """Note the end and answer the tool call with what the subagent said; the first end wins."""
        return await self.store.awrite(lambda db: _finish(db, self.store, end))


def _begin(db: Db, start: SubagentStart) -> SubagentBegun:
    session = sessions.lock(db, start.session_id)
    project_file = projects.file_of(db, session)
    path = subagent_path(start.parent_path, start.name)
    try:
        spec = project_file.agent(path)
    except KeyError:
        raise NotFound(f"there is no subagent {start.name!r}") from None
    walltime = None if spec.cage == "disabled" else spec.cage.walltime_s
    begun = SubagentBegun(agent_path=path, max_steps=spec.max_steps, walltime_s=walltime)
    if invocations.find(db, start.invocation_id) is not None:
        return begun
    if invocations.count_open(db, start.run_id) >= project_file.limits.subagents:
        return SubagentBegun(busy=True)
    call = tool_calls.find(db, start.tool_call_id)
    assert call is not None, "a tool call is stored before it is made"
    tool_calls.start(db, call.id)
    row = SubagentInvocation(
        id=start.invocation_id,
        run_id=start.run_id,
        session_id=start.session_id,
        subagent_name=start.name,
        agent_path=path,
        tool_call_id=call.id,
        cage_id=None if spec.cage == "disabled" else start.invocation_id,
    )
    prompt = str(call.input.get("prompt") or "")
    invocations.begin(db, row, prompt, head=session.current_head)
    return begun


def _finish(db: Db, store: OpenStore, end: SubagentEnd) -> SubagentResult:
    row = invocations.find(db, end.invocation_id)
    state = end.state
    if row is not None:
        error = None if end.error is None else {"code": end.state, "message": end.error}
        if not invocations.end(db, row, state, error):
            state = row.state
        admission.yield_slot(db, end.session_id, end.run_id)
    stopped = end.state == "killed" and end.error is None
    if not stopped:
        _close_call(db, store, end)
    limit = end.error if end.state == "killed" else None
    return SubagentResult(state=state, limit_exceeded=limit)


def _close_call(db: Db, store: OpenStore, end: SubagentEnd) -> None:
    """Answer the caller. A stopped subagent's call is closed with its run, as interrupted."""
    call = tool_calls.find(db, end.tool_call_id)
    assert call is not None, "a tool call is stored before it is closed"
    said = invocations.last_answer(db, end.invocation_id)
    if end.error is None:
        text = said or NO_ANSWER
    else:
        text = f"{end.error}\n\nIts partial output:\n{said}" if said else end.error
    reference = None
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > ANSWER_BYTES_MAX:
        reference = blobs.commit(db, store.blobs.put(raw, "text/plain"))
        kept = raw[:ANSWER_BYTES_MAX].decode("utf-8", "ignore")
        text = f"{kept}\n[cut: {len(raw)} bytes in all, kept whole as blob {reference}]"
    asked = messages.find(db, call.message_id) if call.message_id else None
    tool_calls.close(
        db,
        call,
        text=text,
        output={"subagent": end.name, "invocation_id": end.invocation_id, "result": text},
        failed=end.state != "done",
        output_ref=reference,
        invocation_id=asked.invocation_id if asked is not None else None,
    )
