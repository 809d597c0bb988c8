"""Upkeep tells of a terminal that nobody used for long, once, and files those that end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from activities.terminals import Terminals
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.hosts import hosts
from holdfast.storage.hosts.hosts import Seen
from holdfast.storage.log import events
from holdfast.storage.sessions import ptys
from holdfast.terminal.errors import HostLost, TerminalError, UnknownProcess
from holdfast.terminal.identity import Identity
from holdfast.terminal.registry import IDLE_SECONDS
from tests.support.sample_library import SampleLibrary
from tests.support.servers.terminal_hosts import TestHost, eventually
from worker.endings import file_forever
from worker.upkeep import look_at_terminals

HERE, ELSEWHERE = "here", "elsewhere"


@dataclass
class Info:
    """What a terminal host says of one process."""

    idle: bool = False
    exit: Any = None


@dataclass
class TerminalsDouble:
    """A terminal host with one process."""

    of_process: Info = field(default_factory=Info)
    trouble: TerminalError | None = None

    async def client(self) -> TerminalsDouble:
        return self

    async def identity(self) -> Identity:
        return Identity(HERE, 1)

    async def info(self, key: str) -> Info:
        if self.trouble is not None:
            raise self.trouble
        return self.of_process


@pytest.fixture
def pty(sqlite_store: OpenStore) -> Pty:
    """An open terminal of a session."""
    session_id, pty_id = SampleLibrary(sqlite_store).session(), new_id()
    return sqlite_store.write(lambda db: ptys.opened(db, Pty(id=pty_id, session_id=session_id)))


@pytest.mark.parametrize(
    ("trouble", "state"), [(HostLost("away"), "active"), (UnknownProcess("who?"), "closed")]
)
async def test_only_a_host_that_answers_can_say_that_a_terminal_is_lost(
    sqlite_store: OpenStore, pty: Pty, trouble: TerminalError, state: str
) -> None:
    terminals: Any = TerminalsDouble(trouble=trouble)
    await look_at_terminals(sqlite_store, terminals, set())
    assert sqlite_store.read(lambda db: ptys.get(db, pty.session_id, pty.id)).state == state


async def test_a_terminal_of_another_host_is_not_filed_as_lost(postgres_store: OpenStore) -> None:
    session_id = SampleLibrary(postgres_store).session()
    pty = Pty(id=new_id(), session_id=session_id)
    far = Pty(id=new_id(), session_id=session_id, host_id=ELSEWHERE)
    for one in (pty, far):
        postgres_store.write(partial(ptys.opened, pty=one))
    for name in (HERE, ELSEWHERE):
        seen = Seen(id=name, name=name, epoch=1, address="", task_queue=name, version="0")
        postgres_store.write(partial(hosts.register, seen=seen))
    terminals: Any = TerminalsDouble(trouble=UnknownProcess("who?"))
    await look_at_terminals(postgres_store, terminals, set())
    # The one that does not say where it is may be on the other host.
    found = postgres_store.read(lambda db: ptys.of_session(db, pty.session_id))
    assert {one.id: one.state for one in found} == {pty.id: "active", far.id: "active"}


@pytest.mark.req("K-054")
async def test_an_idle_terminal_is_told_of_once_and_stays_open(
    sqlite_store: OpenStore, pty: Pty
) -> None:
    session_id, pty_id = pty.session_id, pty.id
    terminals: Any = TerminalsDouble()
    told: set[str] = set()
    for is_idle in (False, True, True, False, True):
        terminals.of_process = Info(idle=is_idle)
        await look_at_terminals(sqlite_store, terminals, told)
    rows = sqlite_store.read(lambda db: events.after(db, session_id, 0, limit=100))
    idle = [row.data for row in rows if row.kind == "pty.idle"]
    assert idle == [{"pty_id": pty_id, "idle_s": 30 * 60}] * 2
    assert IDLE_SECONDS == 30 * 60, "as the terminal host counts it"
    assert sqlite_store.read(lambda db: ptys.get(db, session_id, pty_id)).state != "closed"


@pytest.mark.req("K-050", "K-134")
async def test_a_terminal_is_filed_when_it_ends_and_when_its_host_is_lost(
    sqlite_store: OpenStore, pty: Pty
) -> None:
    other = Pty(id=new_id(), session_id=pty.session_id)
    sqlite_store.write(lambda db: ptys.opened(db, other))

    def reasons() -> list[tuple[str, str]]:
        rows = sqlite_store.read(lambda db: events.after(db, pty.session_id, 0, limit=100))
        closed = [row.data for row in rows if row.kind == "pty.closed"]
        return [(data["pty_id"], data["reason"]) for data in closed]

    with TestHost() as host:
        terminals = Terminals(sqlite_store, host.socket, host.state)
        async with await host.client() as client:
            for one in (pty, other):
                await client.spawn(host.request(one.id, "cat", terminal=True))
            look = partial(look_at_terminals, sqlite_store, terminals, set())
            filing = asyncio.create_task(file_forever(sqlite_store, terminals, look))
            await client.write(pty.id, b"\x04")
            await eventually(lambda: reasons() == [(pty.id, "exited")], "filed at its end")
            host.kill()
            host.start()
            lost = [(pty.id, "exited"), (other.id, "lost")]
            await eventually(lambda: reasons() == lost, "filed with the new host")
        filing.cancel()
        await asyncio.gather(filing, return_exceptions=True)
        await terminals.close()
