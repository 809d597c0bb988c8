"""Messages: appended once by id, read in order, through forks to where they came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, bindparam, exists, func, select
from sqlmodel import select as select_rows

from holdfast.domain.clock import now_ms
from holdfast.domain.events import MessageAdded
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import (
    KEY,
    by_key,
    find_row,
    fresh,
    insert_once,
    made,
    step_counter,
    table,
)
from holdfast.storage.database.tables import Message, SessionRow, Supersession
from holdfast.storage.log import events
from holdfast.storage.sessions.lineage import (
    CauseShown,
    Level,
    levels,
    live_in,
    superseded,
)

_messages, _sessions, _supersessions = table(Message), table(SessionRow), table(Supersession)
PREVIEW_CHARS = 63
LEVELS_IN_A_QUERY = 50
_TOUCH = by_key(_sessions).values(
    message_count=_sessions.c.message_count + 1,
    last_active=bindparam("at"),
    updated_at=bindparam("at"),
)
_PREVIEW = _TOUCH.values(
    preview=func.coalesce(func.nullif(_sessions.c.preview, ""), bindparam("words"))
)
# What most sessions ask for at every step: no fork, so one level.
_HISTORY = (
    select_rows(Message)
    .where(
        _messages.c.session_id == bindparam(KEY),
        _messages.c.agent_path == bindparam("path"),
        _messages.c.invocation_id.is_not_distinct_from(bindparam("invocation")),
        _messages.c.id.not_in(
            select(_supersessions.c.message_id).where(
                _supersessions.c.session_id == bindparam(KEY),
                _supersessions.c.undone_change.is_(None),
            )
        ),
    )
    .order_by(_messages.c.seq)
)
# The change counter comes with the rows: as it was when they were read, on Postgres too.
_CHANGE = select(_sessions.c.change_seq).where(_sessions.c.id == bindparam(KEY))
_HISTORY_FROM = (
    select_rows(Message, _CHANGE.scalar_subquery())
    .where(
        _messages.c.session_id == bindparam(KEY),
        _messages.c.seq >= bindparam("from"),
        _messages.c.agent_path == bindparam("path"),
        _messages.c.invocation_id.is_not_distinct_from(bindparam("invocation")),
        # Looked up row by row: there are few, and a session may have thousands superseded.
        ~exists().where(
            _supersessions.c.session_id == bindparam(KEY),
            _supersessions.c.message_id == _messages.c.id,
            _supersessions.c.undone_change.is_(None),
        ),
    )
    .order_by(_messages.c.seq)
)


def append(
    db: Db,
    session_id: str,
    *,
    role: str,
    content: str,
    id: str | None = None,  # noqa: A002 - the column's name
    run_id: str | None = None,
    **columns: Any,
) -> Message:
    """Append one message; the same id twice is stored once."""
    message_id = id or new_id()
    found = find(db, message_id) if id is not None else None
    if found is not None:
        return found
    at = now_ms()
    message = fresh(
        Message,
        id=message_id,
        session_id=session_id,
        run_id=run_id,
        seq=step_counter(db, SessionRow, session_id, "message_seq"),
        role=role,
        content=content,
        created_at=at,
        **columns,
    )
    insert_once(db, Message, message.model_dump(exclude={"number"}))
    _touch(db, session_id, role, content, at)
    added = MessageAdded(message_id=message_id, role=role, agent_path=message.agent_path)
    events.append(db, session_id, added, run_id=run_id, row=("message", message_id))
    return message


def find(db: Db, message_id: str) -> Message | None:
    """The message, or None."""
    return find_row(db, Message, message_id)


def history(
    db: Db,
    session_id: str,
    *,
    agent_path: str = "primary",
    invocation_id: str | None = None,
    chain: list[Level] | None = None,
) -> list[Message]:
    """What an agent's model sees: its own messages that are not superseded, in order.

    `chain` is the session's `levels`, when the caller knows them.
    """
    chain = levels(db, session_id) if chain is None else chain
    if len(chain) == 1:
        values = {KEY: session_id, "path": agent_path, "invocation": invocation_id}
        return list(db.exec(_HISTORY, params=values))
    mine = (_messages.c.agent_path == agent_path) & (
        _messages.c.invocation_id.is_not_distinct_from(invocation_id)
    )
    if len(chain) > LEVELS_IN_A_QUERY:
        gone = superseded(db, chain)
        rows = _read(db, chain, after_seq=0, limit=None, where=mine)
        return [message for message in rows if message.id not in gone]
    # The database leaves out what is superseded: of a long session that is nearly everything.
    mine &= _messages.c.id.not_in(select(_supersessions.c.message_id).where(live_in(chain)))
    return _read(db, chain, after_seq=0, limit=None, where=mine)


def history_from(
    db: Db, session_id: str, seq: int, *, agent_path: str, invocation_id: str | None
) -> tuple[int | None, list[Message]]:
    """Those of `history` that are the session's own, from `seq` on, and its change counter."""
    values = {KEY: session_id, "from": seq, "path": agent_path, "invocation": invocation_id}
    found = list(db.exec(_HISTORY_FROM, params=values))
    return (found[0][1] if found else None), [row for row, _ in found]


def page(
    db: Db,
    session_id: str,
    *,
    after_seq: int = 0,
    limit: int,
    include_superseded: bool = False,
) -> list[tuple[Message, list[CauseShown]]]:
    """Up to `limit` messages after a seq, oldest first, each with why it is superseded."""
    chain = levels(db, session_id)
    gone = superseded(db, chain)
    chosen: list[tuple[Message, list[CauseShown]]] = []
    while len(chosen) < limit:
        batch = _read(db, chain, after_seq=after_seq, limit=limit)
        chosen += _with_causes(batch, gone, include_superseded=include_superseded)
        if len(batch) < limit:
            break
        after_seq = batch[-1].seq
    return chosen[:limit]


def page_before(
    db: Db, session_id: str, *, before_seq: int, limit: int, include_superseded: bool = False
) -> list[tuple[Message, list[CauseShown]]]:
    """Up to `limit` messages before a seq, oldest first: a conversation from its end."""
    chain = levels(db, session_id)
    gone = superseded(db, chain)
    chosen: list[tuple[Message, list[CauseShown]]] = []
    while len(chosen) < limit and before_seq > 1:
        after_seq = max(0, before_seq - 1 - limit)
        batch = _read(db, chain, after_seq=after_seq, limit=before_seq - 1 - after_seq)
        batch = [message for message in batch if message.seq < before_seq]
        chosen = _with_causes(batch, gone, include_superseded=include_superseded) + chosen
        before_seq = after_seq + 1
    return chosen[-limit:]


def seq_in(db: Db, session_id: str, message_id: str) -> int | None:
    """The seq of a message that this session sees, or None."""
    message = find(db, message_id)
    if message is None:
        return None
    for level in levels(db, session_id):
        if level.session_id == message.session_id:
            seen = level.cutoff_seq is None or message.seq <= level.cutoff_seq
            return message.seq if seen else None
    return None


def newest_id(db: Db, session_id: str, *, up_to: int | None = None) -> str | None:
    """The newest message that the session sees, with a seq up to `up_to`; a fork's may be its
    source's."""
    for level in levels(db, session_id):
        newest = select(_messages.c.id).where(*_seen(level, up_to))
        found: str | None = (
            db.connection().execute(newest.order_by(_messages.c.seq.desc()).limit(1)).scalar()
        )
        if found is not None:
            return found
    return None


def count_after(db: Db, session_id: str, seq: int) -> int:
    """How many messages with a later seq the session sees, superseded ones too."""
    count = 0
    for level in levels(db, session_id):
        later = select(func.count()).where(*_seen(level), _messages.c.seq > seq)
        count += db.connection().execute(later).scalar_one()
    return count


def ids_after(db: Db, session_id: str, seq: int) -> list[str]:
    """The messages with a later seq that the session sees, its sources' too, in order."""
    found: list[str] = []
    for level in reversed(levels(db, session_id)):
        if level.cutoff_seq is None or level.cutoff_seq > seq:
            later = select(_messages.c.id).where(*_seen(level), _messages.c.seq > seq)
            found += db.connection().execute(later.order_by(_messages.c.seq)).scalars()
    return found


def _seen(level: Level, up_to: int | None = None) -> list[ColumnElement[bool]]:
    """The messages of a level as far as it is read."""
    seen = [_messages.c.session_id == level.session_id]
    limits = [limit for limit in (level.cutoff_seq, up_to) if limit is not None]
    return [*seen, *([_messages.c.seq <= min(limits)] if limits else [])]


def inherited_count(db: Db, session_id: str) -> int:
    """How many messages of its sources the session reads, superseded ones too."""
    count = 0
    for level in levels(db, session_id)[1:]:
        seen = _messages.c.session_id == level.session_id, _messages.c.seq <= level.cutoff_seq
        count += db.connection().execute(select(func.count()).where(*seen)).scalar_one()
    return count


def last_seq(db: Db, session_id: str) -> int:
    """The seq of the newest message, 0 before the first."""
    seq = select(_sessions.c.message_seq).where(_sessions.c.id == session_id)
    return int(db.connection().execute(seq).scalar() or 0)


def _with_causes(
    batch: list[Message], gone: dict[str, list[CauseShown]], *, include_superseded: bool
) -> list[tuple[Message, list[CauseShown]]]:
    return [
        (message, gone.get(message.id, []))
        for message in batch
        if include_superseded or message.id not in gone
    ]


def _read(
    db: Db,
    chain: list[Level],
    *,
    after_seq: int,
    limit: int | None,
    where: ColumnElement[bool] | None = None,
) -> list[Message]:
    """Messages of all levels. Sources come first: a fork's own seqs begin after its cutoff."""
    rows: list[Message] = []
    for level in reversed(chain):
        wanted = select_rows(Message).where(
            _messages.c.session_id == level.session_id, _messages.c.seq > after_seq
        )
        if level.cutoff_seq is not None:
            wanted = wanted.where(_messages.c.seq <= level.cutoff_seq)
        if where is not None:
            wanted = wanted.where(where)
        if limit is not None:
            wanted = wanted.limit(limit - len(rows))
        # Loaded by the mapper: to construct each row ourselves costs many times as much.
        rows += db.exec(wanted.order_by(_messages.c.seq)).all()
        if limit is not None and len(rows) >= limit:
            break
    return rows


def _touch(db: Db, session_id: str, role: str, content: str, at: int) -> None:
    values: dict[str, Any] = {KEY: session_id, "at": at}
    if role == "operator":
        values["words"] = " ".join(content.split())[:PREVIEW_CHARS]
    db.connection().execute(_PREVIEW if role == "operator" else _TOUCH, values)


def of_run(db: Db, session_id: str, run_id: str) -> list[Message]:
    """Everything that was said in a run, by whichever agent, in order."""
    mine = _messages.c.session_id == session_id, _messages.c.run_id == run_id
    rows = select(_messages).where(*mine).order_by(_messages.c.seq)
    return [made(Message, row) for row in db.connection().execute(rows)]


def by_ids(db: Db, ids: Iterable[str]) -> list[Message]:
    """The messages with these ids, in order."""
    rows = select(_messages).where(_messages.c.id.in_(list(ids))).order_by(_messages.c.seq)
    return [made(Message, row) for row in db.connection().execute(rows)]
