"""Whoever starts a session's workflow, the Temporal UI shows whose it is from its first event."""

from __future__ import annotations

from temporalio.converter import decode_typed_search_attributes

from holdfast.storage.sessions import titles
from tests.support.chat_lines import open_chat, queue_lines
from tests.support.local_worker import LocalWorker, script
from worker.queue import start_waiting
from worker.recovery import restart_lost

TITLE = "Mend the roof"
ONE_SLOT = "primary: {model: 'scripted:echo'}\nlimits: {running_sessions: 1}\nauto_resume: true\n"


async def shown_at_start(worker: LocalWorker, session_id: str) -> dict[str, object]:
    """What the last start of the session's workflow brought, before the workflow did anything."""
    handle = worker.handle(session_id)
    began = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    attributes = decode_typed_search_attributes(began.search_attributes)
    summary = await (await handle.describe()).static_summary()
    return {"summary": summary, **{key.name: value for key, value in attributes}}


def expected(worker: LocalWorker, session_id: str, state: str) -> dict[str, object]:
    """What the Temporal UI finds a session by."""
    row = worker.row(session_id)
    return {
        "summary": TITLE,
        "SessionState": state,
        "Project": row.project_id,
        "Operator": row.created_by,
        "Title": TITLE,
    }


async def test_a_command_starts_a_session_with_its_search_attributes(worker: LocalWorker) -> None:
    session = worker.session(title=TITLE)
    await worker.run(session, "hello")
    assert await shown_at_start(worker, session) == expected(worker, session, "idle")


async def test_the_queue_starts_a_session_with_its_search_attributes(worker: LocalWorker) -> None:
    project = worker.project(ONE_SLOT)
    holder, session = worker.session(project), worker.session(project, title=TITLE)
    await worker.send(holder, script({"hang_s": 60}))
    run = (await worker.send(session, "hello")).run_id or ""
    await worker.cancel(holder)
    await worker.state(holder, "idle")
    await worker.handle(session).terminate("lost")
    assert await start_waiting(worker.sessions, worker.store) == 1
    assert (await worker.over(run)).state == "done"
    assert await shown_at_start(worker, session) == expected(worker, session, "queued")


async def test_a_chat_starts_a_session_with_its_search_attributes(worker: LocalWorker) -> None:
    chats, chat, place = await open_chat(worker)
    session = await queue_lines(chat, place, "hello")
    worker.store.write(lambda db: titles.set_title(db, session, TITLE))
    assert await chats.deliver(worker.sessions)
    await worker.state(session, "idle")
    assert await shown_at_start(worker, session) == expected(worker, session, "idle")


async def test_the_recovery_starts_a_session_with_its_search_attributes(
    worker: LocalWorker,
) -> None:
    session = worker.session(title=TITLE)
    run = (await worker.send(session, script({"deltas": 50, "every_ms": 10}))).run_id or ""
    await worker.streaming(session)
    await worker.handle(session).terminate("lost")
    await restart_lost(worker.sessions, worker.store)
    assert (await worker.over(run)).state == "done"
    assert await shown_at_start(worker, session) == expected(worker, session, "running")
