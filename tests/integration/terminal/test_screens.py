"""Terminals: typed into, resized, left and found again exactly as they were."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.terminal.client import (
    Closed,
    Output,
    Resized,
    Snapshot,
    SpawnRequest,
    TerminalClient,
    Throttled,
)
from holdfast.terminal.errors import InputFull, NotATerminal
from holdfast.terminal.records import ProcessState
from holdfast.terminal.showing import asciicast, read_timed
from holdfast.terminal.transcript import read_raw
from tests.support.screens import Seen, cells, drawn, tmux_cells
from tests.support.servers.terminal_hosts import TestHost, collect, eventually

VIM = ("vim", "-u", "NONE", "-N", "-n", "-i", "NONE")


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


@pytest.fixture
def page(host: TestHost) -> Path:
    path = host.work / "page.py"
    path.write_text("".join(f"def function_{n}(): return {n}  # line\n" for n in range(200)))
    return path


@pytest.mark.req("K-043", "K-044", "K-046", "K-047", "K-146")
async def test_what_is_typed_reaches_the_program_and_its_answer_the_screen(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("typed", 'read x; echo "got $x"', terminal=True))
    seen = Seen()
    async with await client.attach("typed", role="writer") as attachment:
        await attachment.write(b"hello\r")
        await seen.until_closed(attachment)
    assert "got hello" in seen.terminal.text()
    assert isinstance(seen.events[-1], Closed)
    assert (await client.info("typed")).state is ProcessState.EXITED


async def test_a_mere_viewer_cannot_type(host: TestHost, client: TerminalClient) -> None:
    await client.spawn(host.request("viewed", 'read x; echo "got <$x>"', terminal=True))
    async with await client.attach("viewed", role="viewer") as attachment:
        await attachment.write(b"intruder\r")
        await client.write("viewed", b"owner\r")
        await client.wait("viewed")
    assert b"intruder" not in await collect(client, "viewed")


@pytest.mark.req("K-048", "K-146")
async def test_a_resize_reaches_the_program_as_a_signal(
    host: TestHost, client: TerminalClient
) -> None:
    command = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.02; done"
    await client.spawn(host.request("resized", command, terminal=True))
    async with await client.attach("resized") as other:
        seen = Seen()
        await seen.until_text(other, "ready")
        await client.resize("resized", cols=101, rows=41)
        await seen.until_closed(other)
    assert Resized(101, 41) in seen.events
    assert b"41 101" in await collect(client, "resized")
    timed = read_timed(await client.transcript("resized"))
    cast = asciicast(timed, cols=1, rows=1, timestamp=0)
    assert b'"101x41"' in cast


@pytest.mark.req("K-045", "K-051", "K-146")
async def test_an_editor_is_found_again_exactly_as_it_was_left(
    host: TestHost, client: TerminalClient, page: Path
) -> None:
    if shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    argv = (*VIM, str(page))
    await client.spawn(SpawnRequest(key="vim", session_id="s", argv=argv, terminal=True))
    seen = Seen()
    async with await client.attach("vim", role="writer") as first:
        await seen.until_text(first, "function_0")
        await first.write(b":syntax on\r:set number\r:vsplit\r\x06ihello\x1b:echo 'set' . 'tled'\r")
        await seen.until_text(first, "settled")
    alone = await client.info("vim")
    assert (alone.state, alone.viewers) == (ProcessState.RUNNING, 0)
    again = Seen()
    async with await client.attach("vim") as second:
        assert second.mode == "snapshot"
        again.take(await anext(second))
    raw = read_raw(await client.transcript("vim"))
    snapshot = again.events[0]
    assert isinstance(snapshot, Snapshot)
    assert snapshot.exact
    expected = drawn(raw[: snapshot.seq])
    assert again.terminal.text() == expected.text()
    assert cells(again.terminal) == cells(expected)
    assert again.terminal.cursor == expected.cursor
    assert again.terminal.get("active_screen", "int") == 1
    await client.close("vim")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["vim", "less"])
async def test_tmux_draws_the_snapshot_as_it_draws_the_whole_stream(
    host: TestHost, client: TerminalClient, page: Path, program: str
) -> None:
    if shutil.which(program) is None or shutil.which("tmux") is None:
        pytest.skip(f"{program} or tmux is not installed")
    argv, keys, shown = {
        "vim": ((*VIM, str(page)), b":syntax on\r:set nu\r:split\r\x06:echo 'do'.'ne'\r", "done"),
        "less": (("less", str(page)), b" /function_77\r", "function_99"),
    }[program]
    key = f"tmux-{program}"
    await client.spawn(SpawnRequest(key=key, session_id="s", argv=argv, terminal=True))
    seen = Seen()
    async with await client.attach(key, role="writer") as attachment:
        await seen.until_text(attachment, "function_0")
        await attachment.write(keys)
        await seen.until_text(attachment, shown)
    async with await client.attach(key) as attachment:
        snapshot = await anext(attachment)
    assert isinstance(snapshot, Snapshot)
    raw = read_raw(await client.transcript(key))[: snapshot.seq]
    assert await tmux_cells(snapshot.data) == await tmux_cells(raw)
    await client.close(key)


@pytest.mark.req("K-049", "K-051")
async def test_a_viewer_that_comes_back_gets_only_what_it_missed(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("missed", "seq 1 100; read x; echo end", terminal=True))
    await eventually(lambda: _shows(client, "missed", "100"))
    async with await client.attach("missed", from_seq=50) as attachment:
        assert attachment.mode == "resume"
        first = await anext(attachment)
    assert isinstance(first, Output)
    assert first.seq == 50
    async with await client.attach("missed", from_seq=10**9) as attachment:
        assert attachment.mode == "snapshot"
    await client.close("missed")


@pytest.mark.req("K-053", "K-146")
async def test_a_slow_viewer_of_a_flood_is_told_and_shown_the_end(
    host: TestHost, client: TerminalClient
) -> None:
    command = "read x; seq 1 400000; echo flood is over"
    await client.spawn(host.request("flood", command, terminal=True))
    seen = Seen()
    attachment = await client.attach("flood", role="writer", credit=1000, automatic_credit=False)
    first = await anext(attachment)
    assert isinstance(first, Snapshot)
    seen.take(first)
    await attachment.write(b"\r")
    while not isinstance(seen.events[-1], Throttled):
        seen.take(await asyncio.wait_for(anext(attachment), 120))
    shown = sum(len(event.data) for event in seen.events if isinstance(event, Output))
    assert shown <= 1000
    # How much is left out depends on how far the emulator is; where it begins does not.
    assert seen.events[-1].from_seq == first.seq + shown
    assert seen.events[-1].dropped_bytes > 0
    await attachment.grant(64 * 2**20)
    seen.take(await anext(attachment))
    assert isinstance(seen.events[-1], Snapshot)
    await seen.until_closed(attachment)
    whole = drawn(read_raw(await client.transcript("flood")))
    assert "flood is over" in whole.text()
    assert seen.terminal.text() == whole.text()
    history = seen.terminal.contents()
    assert history.count("\n") >= 10_000
    assert whole.contents().endswith(history)
    await attachment.detach()


async def test_a_crash_of_the_emulator_is_not_noticed(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("crash", "echo before; read x", terminal=True))
    await eventually(lambda: _shows(client, "crash", "before"))
    emulator = (await client.host())["screens"]
    os.kill(emulator, signal.SIGKILL)
    await eventually(lambda: _has_other_emulator(client, emulator))
    await client.write("crash", b"after")
    await eventually(lambda: _shows(client, "crash", "before\nafter"))
    async with await client.attach("crash") as attachment:
        snapshot = await anext(attachment)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.exact
    await client.close("crash")


async def test_without_an_emulator_the_ring_is_shown(tmp_path: Path) -> None:
    with TestHost(PYGHOSTTY_LIB="/nowhere") as host:
        async with await host.client() as client:
            await client.spawn(host.request("plain", "echo shown; read x", terminal=True))
            await eventually(lambda: _is_degraded(client))
            async with await client.attach("plain") as attachment:
                seen = Seen()
                await seen.until_text(attachment, "shown")
            first = seen.events[0]
            assert isinstance(first, Snapshot)
            assert not first.exact
            await client.close("plain")


async def test_a_program_that_asks_its_terminal_is_answered_with_nobody_there(
    host: TestHost, client: TerminalClient
) -> None:
    command = r"stty raw -echo; printf '\033[5;7H\033[6n'; read -d R answer; echo ${answer#??}"
    await client.spawn(host.request("asks", command, terminal=True))
    assert (await client.wait("asks")).code == 0
    assert b"5;7" in await collect(client, "asks")


async def test_input_that_nobody_reads_is_refused_at_last(
    host: TestHost, client: TerminalClient
) -> None:
    command = "stty raw -echo; echo deaf; sleep 1000"
    await client.spawn(host.request("deaf", command, terminal=True))
    # Before it is raw, the kernel drops what is too much for a line instead of making us wait.
    async with await client.attach("deaf", role="viewer") as attachment:
        await Seen().until_text(attachment, "deaf")
    for _ in range(25):
        await client.write("deaf", b"x" * 10_000)
    with pytest.raises(InputFull):
        await client.write("deaf", b"x" * 100_000)
    await client.kill("deaf", grace_s=0)
    await client.spawn(host.request("pipe", "sleep 1000"))
    with pytest.raises(NotATerminal):
        await client.write("pipe", b"x")
    await client.kill("pipe", grace_s=0)


@pytest.mark.req("K-054")
async def test_an_idle_terminal_is_reported_and_goes_on() -> None:
    with TestHost(HOLDFAST_TERMINAL_IDLE_S="0.3") as host:
        async with await host.client() as client:
            events = client.events()
            first = asyncio.ensure_future(anext(events))
            await client.host()
            await client.spawn(host.request("idle", "read x; read y", terminal=True))
            assert (await first).kind == "spawned"
            assert (await anext(events)).kind == "idle"
            assert (await client.info("idle")).idle
            await client.write("idle", b"x\r")
            assert (await anext(events)).kind == "active"
            await events.aclose()
            assert (await client.info("idle")).exit is None


@pytest.mark.slow
@pytest.mark.req("K-053", "K-146")
async def test_memory_stays_flat_and_others_are_served_during_a_flood(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("calm", "cat", terminal=True))
    calm = await client.attach("calm", role="writer")
    command = "yes 'a line of some length, for the flood' | head -c 200000000"
    before = _resident_mb(host.pid)
    await client.spawn(host.request("huge", command, terminal=True))
    async with await client.attach("huge") as attachment:
        watching = asyncio.ensure_future(Seen().until_closed(attachment, 600))
        seen = Seen()
        for number in range(50):
            await calm.write(b"ping %d\r" % number)
            await seen.until_text(calm, f"ping {number}")
        await watching
    assert _resident_mb(host.pid) - before < 50
    assert (await client.wait("huge")).output_bytes > 200_000_000
    await calm.detach()
    await client.close("calm")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def _shows(client: TerminalClient, key: str, text: str) -> bool:
    return text in await client.snapshot_text(key)


async def _has_other_emulator(client: TerminalClient, old: int) -> bool:
    return (await client.host())["screens"] not in (None, old)


async def _is_degraded(client: TerminalClient) -> bool:
    return (await client.info("plain")).screen == "degraded"
