"""Tables of the fleet: hosts, and which of them was told to start what."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel


def _big(*, default: int | None = 0) -> Any:
    return Field(default=default, sa_type=BigInteger)


class HostRow(SQLModel, table=True):
    """A machine with a terminal host; the worker beside it keeps `seen_at`."""

    __tablename__ = "hosts"
    id: str = Field(primary_key=True)
    name: str
    epoch: int = _big()  # of the terminal host: grows at each of its starts
    address: str = ""
    task_queue: str
    version: str = ""
    seen_at: int = _big()
    draining: bool = False  # an operator said so
    leaving: bool = False  # its worker is being stopped
    away_told: bool = False  # its sessions were told that it is away


class MemoryIndexRow(SQLModel, table=True):
    """The index of a project's memory, as the host that built it last shared it."""

    __tablename__ = "memory_indexes"
    project_id: str = Field(primary_key=True)
    host_id: str
    generation: int = _big()  # grows with each index that is shared
    size: int = _big()
    note: str = ""  # why the newest index is not shared


class MemoryIndexPart(SQLModel, table=True):
    """A piece of the file of that index, in the blob store."""

    __tablename__ = "memory_index_parts"
    project_id: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    blob: str = Field(index=True)


class Execution(SQLModel, table=True):
    """A call that a host was told to start: whoever finds the row never starts it again."""

    __tablename__ = "executions"
    call_id: str = Field(primary_key=True)
    session_id: str = Field(index=True)
    host_id: str
    epoch: int = _big()
    state: str = "claimed"  # claimed | done | lost
    claimed_at: int = _big()
