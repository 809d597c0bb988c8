"""A viewer of a terminal gets a mebibyte a second, after a burst of one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.terminal import viewer
from holdfast.terminal.screens.ring import Ring
from tests.support.servers.terminal_hosts import eventually

MIB = 1024 * 1024


@pytest.mark.req("K-053")
async def test_a_viewer_gets_a_mebibyte_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("holdfast.terminal.viewer.time", clock)
    process: Any = SimpleNamespace(ring=Ring(), screen=None, exit=None, viewers=set())
    screens: Any = None
    watcher = viewer.Watcher(
        process,
        1,
        screens,
        writes=False,
        on_throttled=lambda *_: None,
        send=lambda _: None,
        congested=lambda: False,
    )

    async def sent(at_least: int) -> int:
        await eventually(lambda: watcher.position >= at_least, "the output")
        for _ in range(100):
            await asyncio.sleep(0)  # whatever else would be sent now
        return watcher.position

    watcher.begin(0, history=False)
    watcher.grant(64 * MIB)
    for expected in (MIB * 3 // 4, MIB):
        process.ring.append(b"x" * (MIB * 3 // 4))
        watcher.wake()
        assert await sent(expected) == expected
    for seconds, expected in ((0.25, MIB * 5 // 4), (0.125, MIB * 11 // 8)):
        now += seconds
        assert await sent(expected) == expected
    watcher.close()
