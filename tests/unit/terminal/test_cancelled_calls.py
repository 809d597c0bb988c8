"""A cancellation that arrives together with what is waited for is kept, not swallowed.

`asyncio.wait_for` of Python 3.11 returns the answer and forgets the cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from holdfast.client import session_socket
from holdfast.client.async_client import AsyncClient
from holdfast.terminal.connection import Connection
from holdfast.terminal.protocol import FrameType, encode_json
from tests.support.waiting import wait_for

# The cancellation comes this many turns of the loop after the answer; one of them is the same one.
TURNS = range(8)


@pytest.fixture
async def streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A reader that the test feeds, and a writer that somebody reads."""
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    yield asyncio.StreamReader(), writer
    writer.close()
    theirs.close()


async def turn(count: int) -> None:
    """Let the loop run everything that is ready, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def is_cancelled(work: Coroutine[Any, Any, object], answer: Any, turns: int) -> bool:
    """Whether the work ends cancelled, when its answer came first and it was not over yet."""
    task = asyncio.create_task(work)
    await turn(4)
    answer()
    await turn(turns)
    accepted = task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return task.cancelled() or not accepted


@pytest.mark.parametrize("turns", TURNS)
async def test_a_call_of_the_terminal_host_that_is_cancelled_as_it_is_answered_ends_cancelled(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], turns: int
) -> None:
    reader, writer = streams
    connection = Connection(reader, writer)
    reply = encode_json(FrameType.REPLY, 0, {"id": 1, "result": "done"})
    assert await is_cancelled(connection.call("wait"), lambda: reader.feed_data(reply), turns)
    await connection.close()


@pytest.mark.parametrize("turns", TURNS)
async def test_a_stream_that_is_cancelled_as_it_is_closed_ends_cancelled(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(session_socket, "RETRY_S_MIN", 600.0)
    stream = AsyncClient("http://127.0.0.1:1", "token").stream("S")

    async def read() -> None:
        async for _ in stream:
            pass
        await asyncio.Event().wait()

    reading = asyncio.create_task(read())
    await asyncio.to_thread(wait_for, lambda: stream._socket._lost_at, "the refusal")
    closing = asyncio.create_task(stream.close())
    await turn(turns)
    reading.cancel()
    await asyncio.wait({closing})
    await turn(20)
    ended = reading.cancelled()
    reading.cancel()
    assert ended
