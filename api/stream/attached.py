"""What a client finds when it attaches: the session, how far its channels are, what is pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.stream.frames import Hello
from holdfast.domain.events import SessionAttached
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import events
from holdfast.storage.sessions import ptys, runs, session_views, sessions
from holdfast.storage.sessions.session_views import SessionShown


@dataclass(frozen=True)
class Attached:
    """The welcome, and where the replay may begin."""

    session_id: str
    session: SessionShown
    server_seq: dict[str, int]
    output_floor: int
    checkpoint: str | None
    queued: dict[str, Any] | None
    ptys: list[dict[str, Any]]

    def gap(self, hello: Hello) -> bool:
        """Whether what the client missed cannot be replayed, or never happened."""
        if hello.output is not None and not (
            self.output_floor <= hello.output <= self.server_seq["output"]
        ):
            return True
        return hello.events is not None and hello.events > self.server_seq["events"]

    def start(self, hello: Hello) -> dict[str, int]:
        """The last seq that the client has, by channel; without one it begins now."""
        return {
            "output": self.server_seq["output"] if hello.output is None else hello.output,
            "events": self.server_seq["events"] if hello.events is None else hello.events,
        }

    def payload(self) -> dict[str, Any]:
        """The welcome's payload."""
        return {
            "session_id": self.session_id,
            "session": self.session,
            "server_seq": self.server_seq,
            "pending": {"checkpoint": self.checkpoint, "queued": self.queued, "ptys": self.ptys},
        }


def welcome(
    db: Db, session_id: str, *, user_id: str | None = None, device_hint: str | None = None
) -> Attached:
    """All of it in one transaction; with `user_id` the coming itself is an event."""
    if user_id is not None:
        came = SessionAttached(session_id=session_id, user_id=user_id, device_hint=device_hint)
        events.append(db, session_id, came)
    row = sessions.get(db, session_id)
    live = [pty for pty in ptys.of_session(db, session_id) if pty.state != "closed"]
    return Attached(
        session_id=session_id,
        session=session_views.view(db, row),
        server_seq={"output": row.frame_seq, "events": row.event_seq},
        output_floor=row.frame_floor,
        checkpoint=row.current_checkpoint,
        queued=_queued(db, row),
        ptys=[ptys.pty_json(db, pty) for pty in live],
    )


def _queued(db: Db, row: SessionRow) -> dict[str, Any] | None:
    if row.state != State.QUEUED or row.active_run is None:
        return None
    run = runs.find(db, row.active_run)
    return {
        "run_id": row.active_run,
        "message_id": None if run is None else run.operator_message,
        "reason": session_views.QUEUED_REASON,
    }
