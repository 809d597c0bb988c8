"""The host's socket among strangers: nonsense ends a connection and never the host."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.terminal import protocol
from holdfast.terminal.connection import Connection
from holdfast.terminal.errors import (
    BadRequest,
    HostLost,
    HostUnavailable,
    TerminalError,
    VersionMismatch,
)
from holdfast.terminal.protocol import FrameType, encode_json
from tests.support.servers.terminal_hosts import TestHost, collect

HELLO = encode_json(FrameType.REQUEST, 0, {"id": 0, "op": "hello", "versions": [protocol.VERSION]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=4,
)
OPERATIONS = (
    *("spawn", "info", "list", "wait", "read", "attach", "detach", "subscribe", "text", "resize"),
    *("write", "suspend", "resume", "kill", "close", "host", "hello", "nonsense"),
)
# Well-formed frames of every kind, also those that only the host or its emulator may send.
FRAMES = st.builds(
    protocol.encode,
    st.sampled_from(FrameType),
    st.integers(0, 2**32 - 1) | st.integers(0, 3),
    st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
)
FIELDS = ("key", "request", "channel", "seq", "cols", "rows", "data", "session_id", "grace_s")


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        yield running


async def send(host: TestHost, data: bytes) -> None:
    """Say something to the host and hang up."""
    reader, writer = await asyncio.open_unix_connection(str(host.socket))
    writer.write(data)
    await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    try:
        await asyncio.wait_for(reader.read(), 120)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def is_well(host: TestHost) -> bool:
    async with await host.client() as client:
        return bool((await client.host())["pid"] == host.pid)


@settings(
    max_examples=int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "30")),
    deadline=None,
)
@given(st.booleans(), st.lists(FRAMES | st.binary(max_size=60), max_size=6))
def test_bytes_and_frames_without_sense_do_no_harm(
    host: TestHost, polite: bool, pieces: list[bytes]
) -> None:
    asyncio.run(send(host, HELLO * polite + b"".join(pieces)))
    assert asyncio.run(is_well(host))


@settings(
    max_examples=int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "60")),
    deadline=None,
)
@given(st.sampled_from(OPERATIONS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_requests_without_sense_are_answered(
    host: TestHost, operation: str, fields: dict[str, Any]
) -> None:
    async def ask() -> bool:
        connection = await Connection.open(str(host.socket))
        with contextlib.suppress(TerminalError):
            await connection.call(operation, **fields)
        alive = connection.alive
        await connection.close()
        return alive

    assert asyncio.run(ask()), "the host hung up instead of answering"


async def test_a_client_of_another_age_is_told_so(host: TestHost) -> None:
    reader, writer = await asyncio.open_unix_connection(str(host.socket))
    hello = {"id": 1, "op": "hello", "versions": [99]}
    writer.write(encode_json(FrameType.REQUEST, 0, hello))
    answer = await protocol.read_frame(reader)
    assert answer is not None
    assert answer.json()["error"]["code"] == VersionMismatch.code
    assert await reader.read() == b""
    writer.close()


async def test_the_first_frame_must_be_a_hello(host: TestHost) -> None:
    reader, writer = await asyncio.open_unix_connection(str(host.socket))
    writer.write(encode_json(FrameType.REQUEST, 0, {"id": 1, "op": "list"}))
    assert await reader.read() == b""
    writer.close()


async def test_a_channel_that_is_taken_is_refused(host: TestHost) -> None:
    connection = await Connection.open(str(host.socket))
    await connection.call("subscribe", channel=1, session_id=None)
    with pytest.raises(TerminalError, match="channels"):
        await connection.call("subscribe", channel=1, session_id=None)
    with pytest.raises(BadRequest, match="no operation"):
        await connection.call("fly")
    await connection.close()
    with pytest.raises(HostLost):
        await connection.call("list")


async def test_a_client_that_never_reads_cannot_hold_the_host_up(host: TestHost) -> None:
    async with await host.client() as client:
        await client.spawn(host.request("much", "seq 1 500000"))
        _, writer = await asyncio.open_unix_connection(str(host.socket))
        read = {"id": 1, "op": "read", "key": "much", "channel": 1, "seq": 0}
        writer.write(HELLO + encode_json(FrameType.REQUEST, 0, read))
        writer.write(protocol.encode_credit(1, 2**31))
        await writer.drain()
        assert len(await collect(client, "much")) > 3_000_000
        writer.transport.abort()


async def test_without_a_host_the_client_says_so() -> None:
    host = TestHost()
    with pytest.raises(HostUnavailable, match="no terminal host"):
        await host.client()
    host.remove()


async def test_a_client_finds_the_next_host_by_itself() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            await client.spawn(host.request("k", "sleep 1000"))
            watching = asyncio.ensure_future(collect(client, "k"))
            # Its answer comes after the reading has begun.
            await client.host()
            host.kill()
            with pytest.raises(HostLost):
                await watching
            host.start()
            assert (await client.host())["pid"] == host.pid
