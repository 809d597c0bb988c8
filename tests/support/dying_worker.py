"""A worker that dies by SIGKILL at one boundary of an activity; run it with `python -m`.

All in it is the product's but the interceptor, which stands before and after every activity, long
or local. Once the file `armed` exists it writes the name of each into the file `passed`, and
at the boundary that `armed` names (`before pause_session`) the process is gone: before, nothing of
the step happened; after, all of it happened and nobody was told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import temporalio.activity
import temporalio.client
import temporalio.worker

from holdfast.settings.environment import Settings
from holdfast.settings.fresh_config import FreshConfig
from holdfast.storage.database.opening import open_store
from holdfast.temporal.connection import connect
from worker.health import WorkerHealth
from worker.main import serve
from worker.parts import build


class Boundaries(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Puts a `Boundary` around every activity; a worker takes it over from its client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def intercept_activity(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,  # noqa: A002 - the library's name
    ) -> temporalio.worker.ActivityInboundInterceptor:
        """The interceptor of the library, in its words."""
        return Boundary(next, self._folder)


class Boundary(temporalio.worker.ActivityInboundInterceptor):
    """Around one activity."""

    def __init__(self, inner: temporalio.worker.ActivityInboundInterceptor, folder: Path) -> None:
        super().__init__(inner)
        self._armed, self._passed = folder / "armed", folder / "passed"

    async def execute_activity(
        self,
        input: temporalio.worker.ExecuteActivityInput,  # noqa: A002 - the library's name
    ) -> Any:
        """Die before, run, die after."""
        if not self._armed.exists():
            return await super().execute_activity(input)
        name, fatal = temporalio.activity.info().activity_type, self._armed.read_text()
        with self._passed.open("a") as file:
            file.write(f"{name}\n")
        if fatal == f"before {name}":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await super().execute_activity(input)
        if fatal == f"after {name}":
            os.kill(os.getpid(), signal.SIGKILL)
        return result


async def main(settings: Settings, folder: Path) -> None:
    """Serve as the product's worker does, until killed."""
    config = FreshConfig(settings.home)
    store = open_store(settings.database_url, settings.home)
    client = await connect(settings, interceptors=[Boundaries(folder)])
    parts, health = build(store, settings, config), WorkerHealth("")
    await serve(client, settings, store, parts, asyncio.Event(), health)


if __name__ == "__main__":
    asyncio.run(main(Settings.load(), Path(sys.argv[1])))
