"""Titles: unique per operator, numbered in a lineage, made from the first words if nobody did."""

from __future__ import annotations

import re

from sqlalchemy import or_, select
from sqlalchemy.exc import IntegrityError

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.sessions import sessions

_sessions, _messages = table(SessionRow), table(Message)
TITLE_CHARS_MAX = 200
AUTO_TITLE_CHARS = 60
_NUMBERED = re.compile(r"^(?P<base>.*\S)\s+#(?P<number>[0-9]{1,9})$", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def set_title(db: Db, session_id: str, title: str | None) -> None:
    """Give the session this title, or none; Conflict when the operator gave it to another.

    A session that only got the title by itself makes way: it goes on under the next number.
    """
    session = sessions.get(db, session_id)
    words = None if title is None else cleaned(title)
    if words is not None and words == session.title:
        change(db, SessionRow, session_id, title_source="user")
        return
    if words is not None:
        _make_way(db, session.created_by, words)
    if not _give(db, session_id, words, None if words is None else "user"):
        raise Conflict("another of your sessions has this title", {"title": words})


def auto_title(db: Db, session_id: str) -> str | None:
    """Give a session without a title one from its first message: once, never over a user's."""
    session = sessions.get(db, session_id)
    if session.title is not None or session.title_source is not None:
        return session.title
    base = _first_words(db, session_id) or _short(session.preview)
    if not base:
        return None
    taken = holder(db, session.created_by, base) is not None
    title = next_title(db, session.created_by, base) if taken else base
    return title if _give(db, session_id, title, "auto") else None


def next_title(db: Db, operator_id: str, title: str) -> str:
    """The next free title of the lineage: X, then X #2, then X #3 (H-030)."""
    base = base_of(title)
    numbers = [number for number, _ in _numbered(db, operator_id, base)]
    return f"{base} #{max(numbers, default=1) + 1}"


def base_of(title: str) -> str:
    """The title without its number."""
    found = _NUMBERED.match(title)
    return found["base"] if found else title


def holder(db: Db, operator_id: str, title: str) -> str | None:
    """The id of the operator's session with exactly this title."""
    same = select(_sessions.c.id).where(
        _sessions.c.created_by == operator_id, _sessions.c.title == title
    )
    found = db.connection().execute(same.limit(1)).scalar()
    return None if found is None else str(found)


def latest_numbered(db: Db, operator_id: str, title: str) -> str | None:
    """The id of the session with the highest number in the lineage of this title (H-029)."""
    number, session_id = max(_numbered(db, operator_id, title), default=(1, None))
    return session_id if number > 1 else None


def cleaned(title: str) -> str:
    """The title as it is stored, or ValidationFailed."""
    words = " ".join(_CONTROL.sub(" ", title).split())
    if not words:
        raise ValidationFailed("a title has at least one visible character")
    if len(words) > TITLE_CHARS_MAX:
        raise ValidationFailed(f"a title has at most {TITLE_CHARS_MAX} characters")
    return words


def _numbered(db: Db, operator_id: str, base: str) -> list[tuple[int, str]]:
    like = _sessions.c.title.startswith(f"{base} #", autoescape=True)
    rows = select(_sessions.c.title, _sessions.c.id).where(
        _sessions.c.created_by == operator_id, or_(_sessions.c.title == base, like)
    )
    found = []
    for title, session_id in db.connection().execute(rows):
        number = _NUMBERED.match(title)
        if title == base:
            found.append((1, str(session_id)))
        elif number and number["base"] == base:
            found.append((int(number["number"]), str(session_id)))
    return found


def _make_way(db: Db, operator_id: str, title: str) -> None:
    """Number the session that has this title only by itself."""
    other = holder(db, operator_id, title)
    if other is not None and sessions.get(db, other).title_source == "auto":
        _give(db, other, next_title(db, operator_id, title), "auto")


def _give(db: Db, session_id: str, title: str | None, source: str | None) -> bool:
    """Whether nobody else took the title in the same moment."""
    try:
        with db.begin_nested():
            change(
                db, SessionRow, session_id, title=title, title_source=source, updated_at=now_ms()
            )
    except IntegrityError:
        return False
    return True


def _first_words(db: Db, session_id: str) -> str:
    first = (
        select(_messages.c.content)
        .where(_messages.c.session_id == session_id, _messages.c.role == "operator")
        .order_by(_messages.c.seq)
        .limit(1)
    )
    return _short(str(db.connection().execute(first).scalar() or ""))


def _short(text: str) -> str:
    """The start of the text, cut between words."""
    words = " ".join(_CONTROL.sub(" ", text[:2_000]).split())
    if len(words) <= AUTO_TITLE_CHARS:
        return words
    cut, _, _ = words[: AUTO_TITLE_CHARS + 1].rpartition(" ")
    return (cut or words[:AUTO_TITLE_CHARS]).rstrip(" ,;:") + "…"
