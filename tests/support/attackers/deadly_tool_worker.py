"""A worker whose `read_file` of the path `deadly` ends it by SIGKILL, as a bug in C would.

Run it with `python -m`. All else in it is the product's.
"""

from __future__ import annotations

import asyncio
import os
import signal

from holdfast.agent.tools import confined as files
from holdfast.folders.confined import Confined
from holdfast.settings.environment import Settings
from holdfast.settings.fresh_config import FreshConfig
from holdfast.storage.database.opening import open_store
from holdfast.temporal.connection import connect
from worker.health import WorkerHealth
from worker.main import serve
from worker.parts import build

_read = files.read


def read(place: Confined, path: str) -> tuple[str, bytes]:
    """Die, or read."""
    if path == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return _read(place, path)


async def main(settings: Settings) -> None:
    """Serve as the product's worker does, until killed."""
    files.read = read
    config = FreshConfig(settings.home)
    store = open_store(settings.database_url, settings.home)
    parts, health = build(store, settings, config), WorkerHealth("")
    await serve(await connect(settings), settings, store, parts, asyncio.Event(), health)


if __name__ == "__main__":
    asyncio.run(main(Settings.load()))
