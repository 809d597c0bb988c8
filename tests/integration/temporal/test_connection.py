"""The API's connection: made before Temporal is there, it works as soon as Temporal is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.domain.errors import Unavailable
from holdfast.domain.ids import new_id
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports
from holdfast.temporal.connection import Connection
from holdfast.temporal.memories import MemoryWorkflows, SyncProgress
from tests.support.local_worker import DEADLINE_S, LocalWorker


@contextlib.asynccontextmanager
async def forwarded(port: int, address: str) -> AsyncIterator[None]:
    """Everything that comes to `port` goes to `address`."""
    host, _, target = address.rpartition(":")
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(target))
        pumps.add(asyncio.create_task(pump(reader, there_writer)))
        pumps.add(asyncio.create_task(pump(there_reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def test_a_connection_that_failed_is_made_again_when_temporal_is_there(
    temporal: str, worker: LocalWorker
) -> None:
    port = ports.free_port()
    settings = Settings(
        home=worker.settings.home,
        temporal_address=f"127.0.0.1:{port}",
        task_queue=worker.settings.task_queue,
    )
    connection = Connection(settings)
    assert (await connection.trouble() or "").startswith("does not answer: ")
    memories = MemoryWorkflows(connection)
    with pytest.raises(Unavailable):
        await memories.progress(new_id())
    async with forwarded(port, temporal), asyncio.timeout(DEADLINE_S):
        while (told := await connection.trouble()) is not None:
            # Its first poll may still be under way; the connection itself is there at once.
            assert told.startswith("no worker polls")
            await asyncio.sleep(0.02)
        assert await memories.progress(new_id()) == SyncProgress(running=False)


async def test_a_task_queue_without_a_worker_is_told(worker: LocalWorker) -> None:
    settings = worker.settings.model_copy(update={"task_queue": f"unserved-{new_id()}"})
    told = await Connection(settings).trouble()
    assert told == f"no worker polls the task queue {settings.task_queue}"
