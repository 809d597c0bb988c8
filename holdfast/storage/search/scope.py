"""Who may find what: the filters of a search, applied inside the query and never afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    String,
    and_,
    case,
    column,
    func,
    select,
    table,
)

from holdfast.storage.database.rows import table as table_of
from holdfast.storage.database.tables import Message, SessionRow

# A terminal's text is found beside the messages, under a role of its own.
TERMINAL_ROLE = "terminal"

_messages, _sessions = table_of(Message), table_of(SessionRow)
# Terminals have no number of their own; the index gives them one, and files them under -number.
TRANSCRIPTS = table(
    "search_transcripts",
    column("number", BigInteger),
    column("transcript_id", String),
    column("session_id", String),
    column("created_at", BigInteger),
)


@dataclass(frozen=True)
class Filters:
    """What may be found. Only the operator is always given."""

    operator_id: str
    sources: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    project_id: str | None = None
    session_id: str | None = None
    since: int | None = None
    until: int | None = None

    def session_scope(self) -> Select[Any]:
        """The ids of the sessions that may be found."""
        conditions: list[ColumnElement[bool]] = [
            _sessions.c.created_by == self.operator_id,
            _sessions.c.purged.is_(False),
        ]
        if self.sources:
            conditions.append(_sessions.c.source.in_(self.sources))
        if self.exclude_sources:
            conditions.append(_sessions.c.source.not_in(self.exclude_sources))
        if self.project_id is not None:
            conditions.append(_sessions.c.project_id == self.project_id)
        if self.session_id is not None:
            conditions.append(_sessions.c.id == self.session_id)
        return select(_sessions.c.id).where(and_(*conditions))


def within(
    filters: Filters, index: FromClause, document: ColumnElement[int]
) -> tuple[FromClause, list[ColumnElement[bool]], ColumnElement[int]]:
    """The index joined to what it points at, the conditions, and the time of a hit."""
    transcript_number = case((_messages.c.number.is_(None), -document))
    joined = index.outerjoin(_messages, _messages.c.number == document).outerjoin(
        TRANSCRIPTS, TRANSCRIPTS.c.number == transcript_number
    )
    session_id = func.coalesce(_messages.c.session_id, TRANSCRIPTS.c.session_id)
    at: ColumnElement[int] = func.coalesce(_messages.c.created_at, TRANSCRIPTS.c.created_at)
    conditions: list[ColumnElement[bool]] = [session_id.in_(filters.session_scope())]
    if filters.roles:
        conditions.append(func.coalesce(_messages.c.role, TERMINAL_ROLE).in_(filters.roles))
    if filters.since is not None:
        conditions.append(at >= filters.since)
    if filters.until is not None:
        conditions.append(at <= filters.until)
    return joined, conditions, at
