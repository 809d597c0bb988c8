"""A terminal host is one: its id lasts, its epoch grows, and its socket is its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast.terminal.errors import HostRestarted, TranscriptMissing
from holdfast.terminal.showing import transcript_copy
from holdfast.terminal.transcript import read_raw
from tests.support.servers.terminal_hosts import TestHost


async def test_a_host_keeps_its_id_and_has_a_later_epoch_after_each_start() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            first = await client.identity()
        host.kill()
        host.start()
        async with await host.client() as client:
            second = await client.identity()
    assert second.id == first.id
    assert second.epoch > first.epoch


async def test_what_was_meant_for_an_earlier_epoch_is_not_started() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            now = await client.identity()
            with pytest.raises(HostRestarted):
                await client.spawn(host.request("late", "touch ran"), epoch=now.epoch - 1)
            assert await client.list() == []
            await client.spawn(host.request("timely", "touch ran"), epoch=now.epoch)
            assert (await client.wait("timely")).code == 0


async def test_a_second_host_with_another_state_does_not_take_the_socket(tmp_path: Path) -> None:
    with TestHost() as host:
        async with await host.client() as client:
            ours = await client.identity()
        command = [sys.executable, "-m", "holdfast.terminal.main", str(host.socket), str(tmp_path)]
        second = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, said = await second.communicate()
        assert second.returncode == 1
        assert f"serves {host.socket}" in said.decode()
        async with await host.client() as client:
            assert await client.identity() == ours


async def test_a_host_that_stops_leaves_the_socket_of_another_one_alone() -> None:
    with TestHost() as host, TestHost() as other:
        # As after somebody cleared the folder of the first one's socket.
        host.socket.unlink()
        other.socket.rename(host.socket)
        host.stop()
        async with await host.client() as client:
            assert (await client.host())["processes"] == 0


async def test_a_transcript_that_is_gone_is_an_error_and_not_an_empty_text() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            for key, command in (("spoke", "echo words"), ("silent", "true")):
                await client.spawn(host.request(key, command))
                await client.wait(key)
            async with transcript_copy(client, "spoke") as copy:
                assert read_raw(copy) == b"words\n"
            for key in ("spoke", "silent"):
                (await client.transcript(key)).unlink()
            with pytest.raises(TranscriptMissing):
                async with transcript_copy(client, "spoke"):
                    pass
            async with transcript_copy(client, "silent") as copy:
                assert read_raw(copy) == b""
