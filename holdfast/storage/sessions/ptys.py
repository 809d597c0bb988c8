"""Terminals as the database knows them, and what they showed once they are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import func, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.events import PtyAllocated, PtyClosed, PtyReattached
from holdfast.domain.ids import new_id
from holdfast.domain.transcript import TEXT_CHARS_MAX, Transcript
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import find_row, insert_once, table
from holdfast.storage.database.tables import Run
from holdfast.storage.database.tables_history import Pty, PtyTranscript
from holdfast.storage.hosts import hosts
from holdfast.storage.log import events
from holdfast.storage.sessions.leases import attach_lease, held

LIVE_MAX = 8
_ptys, _transcripts = table(Pty), table(PtyTranscript)


def opened(db: Db, pty: Pty) -> Pty:
    """Store a new terminal and say so; the same id twice is one terminal. 409 at eight."""
    if find(db, pty.id) is None:
        if live_count(db, pty.session_id) >= LIVE_MAX:
            raise Conflict(f"a session has at most {LIVE_MAX} terminals", {"limit": LIVE_MAX})
        insert_once(db, Pty, {**pty.model_dump(), "created_at": now_ms()})
        allocated = PtyAllocated(
            pty_id=pty.id, session_id=pty.session_id, subagent_name=pty.subagent
        )
        events.append(db, pty.session_id, allocated, run_id=pty.run_id, row=("pty", pty.id))
    return get(db, pty.session_id, pty.id)


def shown(db: Db, pty_id: str, *, lines: int) -> None:
    """An operator's client was sent the terminal's scrollback; only coming back is an event."""
    alive = (_ptys.c.id == pty_id) & (_ptys.c.state != "closed")
    first = update(_ptys).where(alive, _ptys.c.attached_at.is_(None)).values(attached_at=now_ms())
    if db.connection().execute(first).rowcount == 1:
        return
    pty = find(db, pty_id)
    if pty is not None and pty.state != "closed":
        again = PtyReattached(pty_id=pty_id, scrollback_lines_sent=lines)
        events.append(db, pty.session_id, again)


def closed(db: Db, pty_id: str, transcript: Transcript, *, blob_id: str | None) -> bool:
    """The terminal is over; its timed lines are a blob by now. False when it was over before."""
    pty = find(db, pty_id)
    if pty is None or pty.state == "closed":
        return False
    db.connection().execute(
        update(_ptys)
        .where(_ptys.c.id == pty_id)
        .values(
            state="closed",
            closed_at=now_ms(),
            close_reason=transcript.reason,
            exit_code=transcript.exit_code,
        )
    )
    if blob_id is not None:
        row = PtyTranscript(
            id=new_id(),
            run_id=_run_of(db, pty),
            session_id=pty.session_id,
            pty_id=pty_id,
            transcript=blob_id,
            text=transcript.text.replace("\0", "")[:TEXT_CHARS_MAX],  # Postgres takes no NUL
            line_count=transcript.line_count,
            created_at=now_ms(),
        )
        insert_once(db, PtyTranscript, row.model_dump())
    gone = PtyClosed(
        pty_id=pty_id, reason=transcript.reason, transcript_lines=transcript.line_count
    )
    events.append(db, pty.session_id, gone, run_id=pty.run_id, row=("pty", pty_id))
    return True


def _run_of(db: Db, pty: Pty) -> str | None:
    """The terminal's run; None when a clear removed it while the terminal was open."""
    run = None if pty.run_id is None else find_row(db, Run, pty.run_id)
    return None if run is None else run.id


def find(db: Db, pty_id: str) -> Pty | None:
    """The terminal, or None."""
    row = db.connection().execute(select(_ptys).where(_ptys.c.id == pty_id)).first()
    return None if row is None else Pty(**row._mapping)


def get(db: Db, session_id: str, pty_id: str) -> Pty:
    """The session's terminal, or NotFound."""
    pty = find(db, pty_id)
    if pty is None or pty.session_id != session_id:
        raise NotFound("Terminal not found.")
    return pty


def of_session(db: Db, session_id: str, *, limit: int = 500) -> list[Pty]:
    """The session's terminals, newest first."""
    rows = select(_ptys).where(_ptys.c.session_id == session_id)
    rows = rows.order_by(_ptys.c.created_at.desc()).limit(limit)
    return [Pty(**row._mapping) for row in db.connection().execute(rows)]


def live(db: Db, host_id: str, *, limit: int = 10_000) -> list[Pty]:
    """Every terminal of this host that is not closed, of all sessions.

    One of old does not say where it is; where there is one host only, it is there.
    """
    alone = not hosts.are_several(db)
    here = _ptys.c.host_id == host_id
    rows = select(_ptys).where(
        _ptys.c.state != "closed", here | _ptys.c.host_id.is_(None) if alone else here
    )
    rows = rows.limit(limit)
    return [Pty(**row._mapping) for row in db.connection().execute(rows)]


def live_count(db: Db, session_id: str) -> int:
    """How many of the session's terminals are alive."""
    count = select(func.count()).where(_ptys.c.session_id == session_id, _ptys.c.state != "closed")
    return int(db.connection().execute(count).scalar_one())


def transcript_of(db: Db, pty_id: str) -> PtyTranscript | None:
    """The stored transcript of a closed terminal."""
    row = (
        db.connection().execute(select(_transcripts).where(_transcripts.c.pty_id == pty_id)).first()
    )
    return None if row is None else PtyTranscript(**row._mapping)


def pty_json(db: Db, pty: Pty) -> dict[str, Any]:
    """A terminal as the wire shows it, with its state of now."""
    shown_as = {"pty_id": pty.id, **pty.model_dump(exclude={"id"})}
    return {**shown_as, "state": state_now(db, pty)}


def state_now(db: Db, pty: Pty) -> str:
    """`active` while an operator is attached to the session, `detached` while nobody is."""
    if pty.state == "closed":
        return "closed"
    return "active" if held(db, [attach_lease(pty.session_id)]) else "detached"


async def close_with_transcript(store: OpenStore, pty_id: str, transcript: Transcript) -> bool:
    """Close the terminal with its transcript; False when it was closed before. Safe to repeat."""
    if transcript.timed is None:
        return await store.awrite(lambda db: closed(db, pty_id, transcript, blob_id=None))
    blob = await asyncio.to_thread(store.blobs.put, transcript.timed, "application/json")

    def close(db: Db) -> bool:
        return closed(db, pty_id, transcript, blob_id=blobs.commit(db, blob))

    return await store.awrite(close)
