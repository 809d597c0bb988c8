"""An operator's sessions as documents to be remembered: listed cheaply, read one at a time."""

from __future__ import annotations

from sqlalchemy import LargeBinary, bindparam, cast, func, select

from holdfast.domain.memory import MAX_FILE_BYTES, Document
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, table
from holdfast.storage.database.tables import Message, Project, SessionRow
from holdfast.storage.moves.compactions import SUMMARY_KIND
from holdfast.storage.sessions import messages, sessions
from holdfast.storage.transfer.redaction import redact

SESSIONS_MAX = 5_000
FOLDER, SUFFIX = "sessions/", ".md"
# What was said; results of tools and notices are left out.
_ROLES = frozenset({"operator", "primary"})
_sessions, _messages = table(SessionRow), table(Message)
_LISTED = (
    select(
        _sessions.c.id,
        _sessions.c.message_seq,
        _sessions.c.change_seq,
        _sessions.c.message_count,
        _sessions.c.last_active,
    )
    .where(
        _sessions.c.project_id == bindparam(KEY),
        _sessions.c.created_by == bindparam("owner"),
        _sessions.c.purged.is_(False),
        _sessions.c.message_seq > 0,
    )
    .order_by(_sessions.c.last_active.desc(), _sessions.c.id)
    .limit(SESSIONS_MAX)
)
# `length` counts characters. Bytes have another function in each database, and a cast of a text to
# bytes reads backslashes in Postgres.
_ADDED = {
    dialect: select(func.coalesce(func.sum(size), 0)).where(
        _messages.c.session_id == bindparam(KEY), _messages.c.seq > bindparam("seq")
    )
    for dialect, size in (
        ("sqlite", func.length(cast(_messages.c.content, LargeBinary))),
        ("postgresql", func.octet_length(_messages.c.content)),
    )
}
_BORN = (
    select(_sessions.c.id, _sessions.c.project_id)
    .where(_sessions.c.id > bindparam("after"))
    .order_by(_sessions.c.id)
    .limit(SESSIONS_MAX)
)


def listed(db: Db, project: Project) -> list[Document]:
    """The owner's sessions of the project that said something, the newest ones.

    The hash is made of counters, so that a look at all of them reads no message.
    """
    values = {KEY: project.id, "owner": project.created_by}
    return [
        Document(
            path=path_of(row.id),
            source="sessions",
            hash=stamp(row.message_seq, row.change_seq),
            mtime_ms=row.last_active,
            size=row.message_count,
        )
        for row in db.connection().execute(_LISTED, values)
    ]


def text(db: Db, path: str) -> str:
    """What the session says now, one message a line; superseded ones and secrets left out.

    Empty when it is gone meanwhile. Of a very long one the newest part is kept.
    """
    session = sessions.find(db, id_of(path))
    if session is None or session.purged:
        return ""
    lines = [_line(row) for row in messages.history(db, session.id) if _said(row)]
    return "\n".join(lines)[-MAX_FILE_BYTES:]


def added_bytes(db: Db, path: str, seq: int) -> int:
    """How much was said in the session after a seq, in UTF-8."""
    asked = _ADDED[db.get_bind().dialect.name]
    return int(db.connection().execute(asked, {KEY: id_of(path), "seq": seq}).scalar_one())


def begun_after(db: Db, session_id: str) -> list[tuple[str, str]]:
    """Sessions whose ids are greater, with their projects: ids are made in the order of time."""
    return [
        (row.id, row.project_id) for row in db.connection().execute(_BORN, {"after": session_id})
    ]


def stamp(message_seq: int, change_seq: int) -> str:
    """What a session's text depends on: how much was said, and how often some was taken back."""
    return f"{message_seq}.{change_seq}"


def unstamp(found: str) -> tuple[int, int]:
    """The two numbers of a stamp."""
    seq, _, change = found.partition(".")
    return int(seq), int(change)


def path_of(session_id: str) -> str:
    """The name of a session among a memory's documents."""
    return f"{FOLDER}{session_id}{SUFFIX}"


def id_of(path: str) -> str:
    """The session behind such a name."""
    return path.removeprefix(FOLDER).removesuffix(SUFFIX)


def _said(row: Message) -> bool:
    spoken = row.role in _ROLES or row.meta.get("kind") == SUMMARY_KIND
    return spoken and bool(row.content.strip())


def _line(row: Message) -> str:
    return f"{row.role}: {' '.join(redact(row.content).split())}"
