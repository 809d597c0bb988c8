"""Stories of an operator in control: answers, messages while it is busy, retries, approvals."""

from __future__ import annotations

from holdfast.domain.commands import Retry
from holdfast.domain.ids import new_id
from tests.replay.stories import LEAD, MARK, asking, saying, story
from tests.support.control.asked_calls import decide, pending
from tests.support.local_worker import LocalWorker, script, until


@story
async def answered_at_pauses(worker: LocalWorker) -> list[str]:
    """Words answer the model's question, and then come at the operator's own pause."""
    session = worker.session()
    own = {"call": "checkpoint", "arguments": {"reason": "look at this"}}
    slow = {"deltas": 100, "every_ms": 10}
    run = (await worker.send(session, asking(own, slow))).run_id or ""
    row = await worker.state(session, "paused")
    await worker.resume(session, row.current_checkpoint, words=MARK)
    await worker.streaming(session)
    paused = await worker.pause(session)
    await worker.resume(session, paused.checkpoint_id, words=MARK)
    await worker.over(run)
    await worker.state(session, "idle")
    return [session]


@story
async def messages_while_busy(worker: LocalWorker) -> list[str]:
    """Messages to a session at work: steered, queued, an interrupt, and one that is too late."""
    session = worker.session()
    slow = asking({"deltas": 100, "every_ms": 10})
    await worker.send(session, slow)
    await worker.streaming(session)
    for kind in ("steer", "queue", "queue"):
        await worker.send(session, slow, when_busy=kind)
    await worker.event(session, "message.steered")
    await worker.send(session, f"{LEAD}{MARK}", when_busy="interrupt")
    await until(lambda: worker.row(session).waiting == 0, "what waits to be taken")
    await worker.state(session, "idle")
    return [session]


@story
async def retried(worker: LocalWorker) -> list[str]:
    """A run that failed is run again, and fails again."""
    session = worker.session()
    run = await worker.run(session, asking({"error": 401}))
    asked = Retry(command_id=new_id(), user_id=worker.operator_id, run_id=run.id)
    answer = await worker.command(session, "retry", asked)
    await worker.over(answer.run_id or "")
    await worker.state(session, "idle")
    return [session]


@story
async def approvals(worker: LocalWorker) -> list[str]:
    """Calls that wait: one is allowed, one denied, and one of a subagent allowed."""
    ask = "permissions: [{tool: shell, effect: ask}, {tool: subagent, effect: ask}]"
    team = f"{ask}\n  subagents: {{helper: {{model: 'scripted:echo', cage: disabled}}}}"
    body = f"primary:\n  model: 'scripted:echo'\n  cage: disabled\n  {team}\n"
    session = worker.session(worker.project(body))
    shell = {"call": "shell", "arguments": {"command": "echo made"}}
    prompt = script(shell, saying("helped"))
    helper = {"call": "subagent", "arguments": {"name": "helper", "prompt": prompt}}
    sent = await worker.send(session, asking(shell, shell, helper, saying("done")))
    for decision in ("allow", "deny", "allow", "allow"):
        await decide(worker, await pending(worker, session), decision, note=MARK)
    await worker.over(sent.run_id or "")
    await worker.state(session, "idle")
    started = await worker.event(session, "subagent.started")
    return [session, f"{session}/{started.data['invocation_id']}"]


@story
async def stuck(worker: LocalWorker) -> list[str]:
    """The same call with the same result, again and again: it pauses, and is resumed."""
    session = worker.session()
    look = {"call": "list_files", "arguments": {}}
    sent = await worker.send(session, asking(*[look] * 7, saying("done")))
    row = await worker.state(session, "paused")
    await worker.resume(session, row.current_checkpoint)
    await worker.over(sent.run_id or "")
    await worker.state(session, "idle")
    return [session]
