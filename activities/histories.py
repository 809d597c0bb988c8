"""The histories that agents of this worker were shown last, so that a step reads only what is new.

A kept history is used only when the database says, in the statement that reads what is new, that
the session's change counter is where it was and that the last known message still stands where it
stood. Every supersession, and what undoes one, steps that counter, in whichever process: after a
rollback, a compaction, its undoing or a clear the history is read anew.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from holdfast.agent.conversation import ToolCall, Turn
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.sessions import messages
from holdfast.storage.sessions.lineage import Level, levels

HISTORIES_MAX = 64
SIZE_MAX = 24 * 1024 * 1024
# A row and its turn beside their text, about.
MESSAGE_BYTES = 2_000
ROLES = {"operator": "user", "primary": "assistant", "subagent": "assistant", "tool": "tool"}
Key = tuple[str, str, str | None]


@dataclass(frozen=True)
class History:
    """An agent's messages that count, oldest first, each with its turn."""

    chain: list[Level]
    change: int
    rows: list[Message]
    turns: list[Turn]
    size: int = 0


class Histories:
    """Histories by agent, the one used last at the end; nothing when there is no room."""

    def __init__(self, *, size_max: int = SIZE_MAX) -> None:
        self.size_max = size_max
        self._kept: dict[Key, History] = {}
        self._size = 0
        self._lock = threading.Lock()

    def of(
        self, db: Db, session: SessionRow, *, agent_path: str, invocation_id: str | None
    ) -> History:
        """What the agent's model sees now; the session as this transaction has read it."""
        key = (session.id, agent_path, invocation_id)
        chain, change = levels(db, session.id), session.change_seq
        with self._lock:
            known = self._kept.get(key)
        found = None
        if known is not None and (known.chain, known.change) == (chain, change):
            found = _continued(db, known, key)
        if found is None:
            rows = messages.history(
                db, session.id, agent_path=agent_path, invocation_id=invocation_id, chain=chain
            )
            found = _with(History(chain, change, [], []), rows)
        self._keep(key, found)
        return found

    def _keep(self, key: Key, history: History) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self._size -= before.size if before else 0
            if not history.rows or history.size > self.size_max:
                return
            self._kept[key] = history
            self._size += history.size
            while self._size > self.size_max or len(self._kept) > HISTORIES_MAX:
                oldest = self._kept.pop(next(iter(self._kept)))
                self._size -= oldest.size


def as_turn(message: Message) -> Turn:
    """A stored message in no provider's dialect."""
    calls = tuple(
        ToolCall(one["id"], one["name"], one.get("arguments") or {})
        for one in message.tool_calls or ()
    )
    return Turn(
        ROLES.get(message.role, "system"),  # type: ignore[arg-type]
        message.content,
        tool_calls=calls,
        tool_call_id=message.tool_call_id,
        tool_name=message.tool_name,
    )


def _continued(db: Db, known: History, key: Key) -> History | None:
    """The known history with what came after it; None when it is no longer true."""
    session_id, agent_path, invocation_id = key
    last = known.rows[-1]
    change, rows = messages.history_from(
        db, session_id, last.seq, agent_path=agent_path, invocation_id=invocation_id
    )
    if change != known.change or not rows or rows[0].id != last.id:
        return None
    return _with(known, rows[1:])


def _with(known: History, rows: list[Message]) -> History:
    """The history with further messages; a new one, because others may be reading the old."""
    size = sum(MESSAGE_BYTES + len(row.content) for row in rows)
    turns = [as_turn(row) for row in rows]
    return History(
        known.chain, known.change, known.rows + rows, known.turns + turns, known.size + size
    )
