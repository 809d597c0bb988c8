"""AsyncClient against a real server: many sessions at once, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, assert_type

import pytest

from holdfast import AsyncClient
from holdfast.storage.log import events, frames
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.waiting import wait_for

SESSIONS = 4  # so many of one project run at once


@pytest.fixture
async def holdfast(api: ApiServer, caller: Caller) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(api.url, caller.token) as client:
        yield client


@pytest.fixture
async def project_id(holdfast: AsyncClient, tmp_path: Path) -> str:
    found: str = (await holdfast.load_project(str(tmp_path)))["id"]
    return found


async def answer_of(api: ApiServer, holdfast: AsyncClient, session_id: str, text: str) -> str:
    """Ask, and let the run answer this text and finish."""
    heard = ""
    pairs = [("delta", {"text": letter}) for letter in text]
    async for frame in holdfast.ask(session_id, "hello"):
        if frame.type == "accepted":
            await api.store.awrite(lambda db: frames.append(db, session_id, *pairs))
            await asyncio.to_thread(api.double.finish, session_id)
        elif frame.type == "delta":
            heard += frame.payload["text"]
    return heard


async def test_one_client_asks_many_sessions_at_once(
    api: ApiServer, holdfast: AsyncClient, project_id: str
) -> None:
    made = await asyncio.gather(*(holdfast.create(project_id) for _ in range(SESSIONS)))
    spoken = [f"the words of {session['id']}" for session in made]
    asked = (
        answer_of(api, holdfast, session["id"], text)
        for session, text in zip(made, spoken, strict=True)
    )
    assert await asyncio.gather(*asked) == spoken
    listed = assert_type(await holdfast.items("/sessions"), list[Any])
    assert [session["state"] for session in listed] == ["idle"] * SESSIONS


def detached(api: ApiServer, session_id: str) -> list[str]:
    """Why attached clients left the session, once one did."""

    def reasons() -> list[str]:
        rows = api.store.read(lambda db: events.after(db, session_id, 0, limit=100))
        return [row.data["reason"] for row in rows if row.kind == "session.detached"]

    return wait_for(reasons, "the client to leave")


async def test_a_cancelled_reader_leaves_the_session_cleanly(
    api: ApiServer, holdfast: AsyncClient, project_id: str
) -> None:
    session = await holdfast.create(project_id)
    attached = asyncio.Event()

    async def read() -> None:
        async for _ in holdfast.stream(session["id"], observe=False):
            attached.set()

    reading = asyncio.create_task(read())
    await attached.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(detached, api, session["id"]) == ["clean"]
    assert (await holdfast.session(session["id"]))["attached"] is False


async def test_a_cancelled_question_goes_on_without_its_reader(
    api: ApiServer, holdfast: AsyncClient, project_id: str
) -> None:
    session = await holdfast.create(project_id)
    accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        async for frame in holdfast.ask(session["id"], "hello"):
            if frame.type == "accepted":
                accepted.set_result(frame.payload["run"]["id"])

    asking = asyncio.create_task(ask())
    run_id = await accepted
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await holdfast.session(session["id"]))["active_run"] == run_id
    await asyncio.to_thread(api.double.finish, session["id"])
    assert (await holdfast.wait_for_run(session["id"], run_id))["state"] == "done"
