"""What only asyncio has: cancelled tasks, other tasks, iterators that are left early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

import pytest

from holdfast import AsyncClient, AsyncSessionStream
from holdfast.client import session_socket
from tests.support.servers.socket_server import WelcomingServer, ignore, socket_server
from tests.support.waiting import wait_for


@pytest.fixture
def server() -> WelcomingServer:
    return WelcomingServer()


@pytest.fixture
def url(server: WelcomingServer) -> Iterator[str]:
    with socket_server(server.serve) as found:
        yield found


@pytest.fixture
async def stream(url: str) -> AsyncIterator[AsyncSessionStream]:
    async with AsyncClient(url, "token") as client:
        yield client.stream("S")


async def read(stream: AsyncSessionStream, welcomed: asyncio.Event) -> list[str]:
    """The types of all frames until the stream is over."""
    kinds = []
    async for frame in stream:
        kinds.append(frame.type)
        welcomed.set()
    return kinds


async def test_close_from_another_task_ends_the_iteration(
    server: WelcomingServer, stream: AsyncSessionStream
) -> None:
    welcomed = asyncio.Event()
    reading = asyncio.create_task(read(stream, welcomed))
    await welcomed.wait()
    await stream.close()
    assert await reading == ["welcome"]
    assert await asyncio.to_thread(server.codes_when_left) == [1000]


async def test_cancelling_the_task_that_reads_closes_the_socket(
    server: WelcomingServer, stream: AsyncSessionStream
) -> None:
    welcomed = asyncio.Event()
    reading = asyncio.create_task(read(stream, welcomed))
    await welcomed.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(server.codes_when_left) == [1000]


async def test_cancelling_a_task_between_two_frames_closes_the_socket(
    server: WelcomingServer, stream: AsyncSessionStream
) -> None:
    welcomed = asyncio.Event()

    async def work_on_each_frame() -> None:
        async for _ in stream:
            welcomed.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(work_on_each_frame())
    await welcomed.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await asyncio.to_thread(server.codes_when_left) == [1000]


async def test_leaving_the_block_of_a_stream_closes_the_socket(
    server: WelcomingServer, stream: AsyncSessionStream
) -> None:
    async with stream:
        async for frame in stream:
            assert frame.type == "welcome"
            break
    assert await asyncio.to_thread(server.codes_when_left) == [1000]


async def test_close_ends_the_wait_for_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_socket, "RETRY_S_MIN", 600.0)
    with socket_server(ignore, refuse=HTTPStatus.SERVICE_UNAVAILABLE) as url:
        stream = AsyncClient(url, "token").stream("S")
        reading = asyncio.create_task(read(stream, asyncio.Event()))
        await asyncio.to_thread(wait_for, lambda: stream._socket._lost_at, "the refusal")
        await stream.close()
        assert await asyncio.wait_for(reading, 120.0) == []
