"""How fast terminals are: keystroke echo and floods through the host, beside a bare pty."""

from __future__ import annotations

import asyncio
import os
import select
import time
from pathlib import Path

from ptyprocess import PtyProcess

from holdfast.terminal.client import Attachment, Closed, Output, TerminalClient
from tests.bench.row import Row
from tests.support.servers.terminal_hosts import TestHost, collect, eventually

KEYSTROKES = 500
FLOOD_BYTES = 50_000_000
ECHO = "stty raw -echo; printf ready; cat"
FLOOD = f"yes 'a line of some length, for the flood' | head -c {FLOOD_BYTES}"


def measure() -> list[Row]:
    """Echo when idle and during a flood; a flood on a terminal and through a pipe."""
    raw_p50, raw_p99 = _raw_echo()
    raw_flood = _raw_flood()
    with TestHost() as host:
        measured = asyncio.run(_through_the_host(host))
    rows = [
        Row(f"echo through the host, {name}", value, "ms", "bare pty", bare, value / bare, goal, "")
        for name, value, bare, goal in (
            ("p50", measured["p50"], raw_p50, ""),
            ("p99", measured["p99"], raw_p99, ""),
            ("p99 during a flood", measured["flooded p99"], raw_p99, "< 50 ms"),
        )
    ]
    for name in ("terminal", "pipe"):
        rate = measured[name]
        title = f"flood through the host, {name}"
        rows.append(Row(title, rate, "MiB/s", "bare pty", raw_flood, rate / raw_flood))
    rows.append(Row("memory the host gained", measured["memory"], "MiB", goal="< 50 MiB"))
    return rows


async def _through_the_host(host: TestHost) -> dict[str, float]:
    async with await host.client() as client, await host.client() as other:
        await client.spawn(host.request("echo", ECHO, terminal=True))
        await eventually(lambda: _is_ready(client))
        async with await client.attach("echo", role="writer") as attachment:
            await anext(attachment)
            p50, p99 = await _echo(attachment)
            before = _resident_mib(host.pid)
            began = time.perf_counter()
            await client.spawn(host.request("flood", FLOOD, terminal=True))
            watching = asyncio.ensure_future(_watch(other))
            _, flooded = await _echo(attachment)
            await client.wait("flood")
            terminal = FLOOD_BYTES / 2**20 / (time.perf_counter() - began)
            await watching
        began = time.perf_counter()
        await client.spawn(host.request("pipe", FLOOD))
        size = len(await collect(client, "pipe"))
        pipe = size / 2**20 / (time.perf_counter() - began)
        memory = _resident_mib(host.pid) - before
    return {
        "p50": p50,
        "p99": p99,
        "flooded p99": flooded,
        "terminal": terminal,
        "pipe": pipe,
        "memory": memory,
    }


async def _is_ready(client: TerminalClient) -> bool:
    return (await client.info("echo")).seq >= len("ready")


async def _echo(attachment: Attachment) -> tuple[float, float]:
    times: list[float] = []
    for _ in range(KEYSTROKES):
        began = time.perf_counter()
        await attachment.write(b"x")
        while not isinstance(await anext(attachment), Output):
            pass
        times.append(time.perf_counter() - began)
    return _percentiles(times)


async def _watch(client: TerminalClient) -> None:
    async with await client.attach("flood") as attachment:
        while not isinstance(await anext(attachment), Closed):
            pass


def _raw_echo() -> tuple[float, float]:
    child = PtyProcess.spawn(["/bin/sh", "-c", ECHO])
    _read_until(child.fd, b"ready")
    times: list[float] = []
    for _ in range(KEYSTROKES):
        began = time.perf_counter()
        os.write(child.fd, b"x")
        os.read(child.fd, 64)
        times.append(time.perf_counter() - began)
    child.close(force=True)
    return _percentiles(times)


def _raw_flood() -> float:
    began = time.perf_counter()
    child = PtyProcess.spawn(["/bin/sh", "-c", FLOOD])
    total = 0
    while total < FLOOD_BYTES:
        total += len(os.read(child.fd, 65536))
    child.close(force=True)
    return total / 2**20 / (time.perf_counter() - began)


def _read_until(number: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        select.select([number], [], [], 10)
        seen += os.read(number, 1024)


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1000, ordered[len(ordered) * 99 // 100] * 1000


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
