"""Upkeep tells of a terminal that nobody used for long, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from domain.ids import new_id
from storage import events, ptys, sessions
from storage.opening import OpenStore
from storage.tables import SessionRow
from storage.tables_history import Pty
from worker.upkeep import look_at_terminals


@dataclass
class Info:
    """What a terminal host says of one process."""

    idle: bool = False
    exit: Any = None


@dataclass
class TerminalsDouble:
    """A terminal host with one process."""

    of_process: Info = field(default_factory=Info)

    async def client(self) -> TerminalsDouble:
        return self

    async def info(self, key: str) -> Info:
        return self.of_process


@pytest.mark.req("K-054")
async def test_an_idle_terminal_is_told_of_once_and_stays_open(sqlite_store: OpenStore) -> None:
    session_id, pty_id = new_id(), new_id()
    row = SessionRow(
        id=session_id, project_id="p", created_by="o", working_directory="/tmp", dsl_hash="h"
    )
    sqlite_store.write(lambda db: sessions.create(db, row))
    sqlite_store.write(lambda db: ptys.opened(db, Pty(id=pty_id, session_id=session_id)))
    terminals: Any = TerminalsDouble()
    told: set[str] = set()
    for idle in (False, True, True, False, True):
        terminals.of_process = Info(idle=idle)
        await look_at_terminals(sqlite_store, terminals, told)
    rows = sqlite_store.read(lambda db: events.after(db, session_id, 0, limit=100))
    assert [row.data["pty_id"] for row in rows if row.kind == "pty.idle"] == [pty_id, pty_id]
    assert sqlite_store.read(lambda db: ptys.get(db, session_id, pty_id)).state != "closed"
