"""One thing that does not fit in a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IssueFound:
    """What kind of trouble, in which row, of which session if it is of one."""

    type: str
    id: str
    session_id: str | None = None
