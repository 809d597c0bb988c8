"""A short step that a stopping worker cancels ends by itself, with its answer."""

from __future__ import annotations

import asyncio

import pytest

from activities.shutdown import finish_despite_shutdown


async def test_a_cancelled_step_still_answers() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "stored"

    step = asyncio.create_task(finish_despite_shutdown(work()))
    await begun.wait()
    step.cancel()
    await asyncio.sleep(0)
    assert not step.done()
    may_end.set()
    assert await step == "stored"


async def test_what_the_step_says_comes_through() -> None:
    async def refused() -> None:
        raise ValueError("no")

    async def broken_off() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="no"):
        await finish_despite_shutdown(refused())
    with pytest.raises(asyncio.CancelledError):
        await finish_despite_shutdown(broken_off())
