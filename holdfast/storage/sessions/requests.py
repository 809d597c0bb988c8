"""What a model call was sent, by reference: the messages it was shown, as ranges of their ids.

A range `[first, last]` names the two messages and every one between them: in one session, with no
number left out. So a descriptor names every message and stays small however long the history is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message

VERSION = 2
ROOT, SUBAGENT, LEAF = "root-agent", "subagent", "leaf-agent"
_messages = table(Message)


def ranges(shown: Sequence[Message]) -> list[list[str]]:
    """The ids of messages in the order given, as ranges."""
    found: list[list[str]] = []
    before: Message | None = None
    for message in shown:
        if (
            before is not None
            and message.session_id == before.session_id
            and message.seq == before.seq + 1
        ):
            found[-1][1] = message.id
        else:
            found.append([message.id, message.id])
        before = message
    return found


def ids(db: Db, named: Sequence[Sequence[str]], sessions: Collection[str]) -> list[str]:
    """Every id in the ranges, in their order, of messages of these sessions.

    Messages that were purged since are left out.
    """
    return [one for first, last in named for one in _between(db, first, last, sessions)]


def _between(db: Db, first: str, last: str, sessions: Collection[str]) -> list[str]:
    if first == last:
        return [first]
    ends = {
        row.id: row
        for row in db.connection().execute(
            select(_messages.c.id, _messages.c.session_id, _messages.c.seq).where(
                _messages.c.id.in_((first, last)), _messages.c.session_id.in_(sessions)
            )
        )
    }
    if len(ends) < 2:
        return list(ends)
    rows = (
        select(_messages.c.id)
        .where(
            _messages.c.session_id == ends[first].session_id,
            _messages.c.seq.between(ends[first].seq, ends[last].seq),
        )
        .order_by(_messages.c.seq)
    )
    return list(db.connection().execute(rows).scalars())
