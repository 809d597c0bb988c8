"""Waits for a database server that does not answer, with words in the log and growing pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import structlog

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.trouble import StoreAway

FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
log = structlog.get_logger()


def open_patiently(
    open_it: Callable[[], OpenStore], *, patience_s: float | None = None
) -> OpenStore:
    """The store, however long its server takes; StoreAway once `patience_s` is over."""
    deadline = None if patience_s is None else time.monotonic() + patience_s
    for wait_s in _waits():
        try:
            return open_it()
        except StoreAway as error:
            if deadline is not None and time.monotonic() + wait_s > deadline:
                raise
            _tell(error, wait_s)
        time.sleep(wait_s)
    raise AssertionError("there is always another wait")


async def open_until(stopped: asyncio.Event, open_it: Callable[[], OpenStore]) -> OpenStore | None:
    """The same beside a running loop; None when `stopped` was set before the server answered."""
    for wait_s in _waits():
        if stopped.is_set():
            return None
        try:
            return await asyncio.to_thread(open_it)
        except StoreAway as error:
            _tell(error, wait_s)
        try:
            async with asyncio.timeout(wait_s):
                await stopped.wait()
        except TimeoutError:
            continue
    return None


def _waits() -> Iterator[float]:
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(wait_s * 1.6, LONGEST_WAIT_S)


def _tell(error: StoreAway, wait_s: float) -> None:
    log.warning("store.waiting_for_database", reason=error.message, again_in_s=round(wait_s, 1))
