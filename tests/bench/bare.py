"""A bare workflow with as many activities as a run has: what Temporal alone costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.domain.ids import new_id


@activity.defn
async def do_nothing() -> None:
    """An activity without work."""


@workflow.defn
class Bare:
    """Activities, one after the other."""

    @workflow.run
    async def run(self, activities: int) -> None:
        """Each begins when the one before it has ended."""
        for _ in range(activities):
            await workflow.execute_activity(do_nothing, start_to_close_timeout=timedelta(minutes=1))


@contextmanager
def bare_runs(address: str, activities: int) -> Iterator[Callable[[], None]]:
    """A call that runs one such workflow to its end, so that both can be measured in turn."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[Client, Worker, asyncio.Task[None]]:
        client = await Client.connect(address)
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[Bare],
            activities=[do_nothing],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        return client, worker, asyncio.create_task(worker.run())

    async def stop() -> None:
        await worker.shutdown()
        await running

    async def once() -> None:
        await client.execute_workflow(Bare.run, activities, id=new_id(), task_queue=queue)

    queue = f"bench-{new_id()}"
    client, worker, running = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield lambda: asyncio.run_coroutine_threadsafe(once(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
