"""What happened to watched sessions since the last look: how far each is, and its new rows.

Rows are carried only while they are few and small; who finds a hole reads the database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

CARRIED_ROWS_MAX = 500
CARRIED_CHARS_MAX = 16 * 1024
# How far a session's events and frames are.
Places = dict[str, tuple[int, int]]
_PLACES = (
    "SELECT id, event_seq, frame_seq FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
)
# CROSS JOIN keeps the order of the tables: a few sessions, and of each a piece of its index.
_FROM = (
    " FROM json_each(?) AS wanted CROSS JOIN {table} AS row"
    " ON row.session_id = json_extract(wanted.value, '$[0]')"
    " AND row.seq > json_extract(wanted.value, '$[1]')"
    " AND row.seq <= json_extract(wanted.value, '$[2]')"
    " AND {length} <= ? ORDER BY row.session_id, row.seq LIMIT ?"
)
_FRAMES = "SELECT row.session_id, row.seq, row.type, row.payload" + _FROM.format(
    table="frames", length="row.size"
)
_EVENTS = "SELECT row.session_id, row.seq, row.kind, row.id, row.at, row.data" + _FROM.format(
    table="events", length="length(row.data)"
)


class FrameText(NamedTuple):
    """One frame of the output channel; its payload is JSON text as it is stored."""

    seq: int
    type: str
    payload: str


class EventText(NamedTuple):
    """One event; its data is JSON text as it is stored."""

    seq: int
    kind: str
    id: str
    at: int
    data: str


@dataclass(frozen=True)
class News:
    """How far a session is, and of what is new as much as was carried along, oldest first."""

    event_seq: int
    frame_seq: int
    events: Sequence[EventText] = ()
    frames: Sequence[FrameText] = ()


class Raw(Protocol):
    """A connection of the driver's own."""

    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """Run one statement."""


def places(raw: Raw, session_ids: Sequence[str]) -> Places:
    """How far these sessions are."""
    rows = raw.execute(_PLACES, (json.dumps(session_ids),)).fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def read_news(raw: Raw, before: Mapping[str, tuple[int, int]], now: Places) -> dict[str, News]:
    """What each session in `now` has that it had not `before`; one read for all of them."""
    frames: dict[str, list[FrameText]] = {}
    events: dict[str, list[EventText]] = {}
    for row in _rows(raw, _FRAMES, _pieces(before, now, 1)):
        frames.setdefault(row[0], []).append(FrameText(*row[1:]))
    for row in _rows(raw, _EVENTS, _pieces(before, now, 0)):
        events.setdefault(row[0], []).append(EventText(*row[1:]))
    return {
        key: News(*place, events.get(key, ()), frames.get(key, ())) for key, place in now.items()
    }


def _pieces(
    before: Mapping[str, tuple[int, int]], now: Places, which: int
) -> list[tuple[str, int, int]]:
    return [
        (key, before[key][which], place[which])
        for key, place in now.items()
        if key in before and before[key][which] < place[which]
    ]


def _rows(raw: Raw, statement: str, pieces: list[tuple[str, int, int]]) -> list[Any]:
    if not pieces:
        return []
    parameters = (json.dumps(pieces), CARRIED_CHARS_MAX, CARRIED_ROWS_MAX)
    found: list[Any] = raw.execute(statement, parameters).fetchall()
    return found
