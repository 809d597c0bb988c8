"""The host beside a worker: how it is let go when the worker is told to stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from holdfast.storage.database.trouble import StoreBusy
from holdfast.terminal.identity import Identity
from worker.hosting import Hosting


class SilentStore:
    """A database whose network was cut."""

    async def awrite(self, _: object) -> None:
        raise StoreBusy("the database is busy; try again")


async def test_a_worker_stops_cleanly_while_the_database_is_silent() -> None:
    nothing: Any = SimpleNamespace()
    hosting = Hosting(nothing, nothing, cast(Any, SilentStore()), nothing)
    hosting._identity = Identity("host", 1)
    stopped: list[str] = []

    async def stop_serving() -> None:
        stopped.append("served no more")

    hosting._stop_serving = stop_serving  # type: ignore[method-assign]
    await hosting.stop()
    assert stopped == ["served no more"]
