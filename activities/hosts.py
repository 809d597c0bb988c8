"""Which host a session has: found, given, moved; and calls whose host is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from temporalio import activity

from activities.refusals import answering
from activities.terminals import Terminals
from activities.tools.claims import LOST_WORDS
from holdfast.domain.errors import Conflict, NoHost
from holdfast.domain.events import SessionMoved
from holdfast.domain.host_steps import (
    HostRef,
    LostCall,
    LostStep,
    MoveStep,
    Placed,
    PlaceStep,
    TakeStep,
)
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_hosts import HostRow
from holdfast.storage.hosts import executions, hosts
from holdfast.storage.log import events
from holdfast.storage.sessions import attention, messages, ptys, sessions, tool_calls
from holdfast.terminal.errors import TerminalError

NOT_STARTED_WORDS = (
    "The machine of this session is away, and this call was not started on it. Go on without it, "
    "or ask the operator to bring the machine back or to move the session."
)
HOSTS_NAMED_MAX = 10


class HostActivities:
    """The steps that find hosts. Each may be repeated: the database decides once."""

    def __init__(
        self, store: OpenStore, terminals: Terminals, config: Callable[[], Config]
    ) -> None:
        self.store = store
        self._terminals = terminals
        self._config = config

    @activity.defn(name="place_session")
    @answering
    async def place_session(self, step: PlaceStep) -> Placed:
        """The session's host; where only one could be it and that is ours, it is given at once."""
        found = await self.store.aread(lambda db: self._placed(db, step))
        if found.host is not None or step.only_look or len(found.candidates) != 1:
            return found
        (only,) = found.candidates
        if not await self._is_ours(only.id):
            return found
        if not await asyncio.to_thread(os.path.isdir, found.folder):
            raise NoHost(no_host_words(found.folder, [only.name]))
        given = await self.store.awrite(lambda db: hosts.give(db, step.session_id, only.id))
        return Placed(host=only) if given == only.id else Placed(candidates=[only])

    @activity.defn(name="take_session")
    @answering
    async def take_session(self, step: TakeStep) -> bool:
        """Whether our host has the session's folder; unless only asked, it has the session then."""
        ours = await self._terminals.identity()
        session = await self.store.aread(lambda db: sessions.get(db, step.session_id))
        if not await asyncio.to_thread(os.path.isdir, session.working_directory):
            return False
        if step.only_look:
            return True
        given = await self.store.awrite(lambda db: hosts.give(db, step.session_id, ours.id))
        return given == ours.id

    @activity.defn(name="move_session")
    @answering
    async def move_session(self, step: MoveStep) -> HostRef:
        """Bind the session to another host. Safe to repeat."""
        return await self.store.awrite(lambda db: self._move(db, step))

    @activity.defn(name="end_lost_call")
    @answering
    async def end_lost_call(self, step: LostStep) -> LostCall:
        """Close a call whose host is away; what is known of it is what the model reads."""
        return await self.store.awrite(lambda db: _end_lost(db, step))

    async def _is_ours(self, host_id: str) -> bool:
        try:
            return (await self._terminals.identity()).id == host_id
        except TerminalError:
            return False

    def _placed(self, db: Db, step: PlaceStep) -> Placed:
        session = sessions.get(db, step.session_id)
        if step.host_id is not None:
            asked = self._ref(hosts.get(db, step.host_id))
            return Placed(host=asked, folder=session.working_directory)
        host = hosts.find(db, session.host_id) if session.host_id else None
        if host is not None or step.only_look:
            return Placed(host=None if host is None else self._ref(host))
        refs = [self._ref(one) for one in hosts.candidates(db)]
        known = [f"{one.name} is {hosts.state_of(one)}" for one in hosts.everywhere(db)]
        why = ", ".join(known[:HOSTS_NAMED_MAX]) or "no host was ever here"
        return Placed(candidates=refs, folder=session.working_directory, why=why)

    def _ref(self, host: HostRow) -> HostRef:
        lost_after_s = self._config().fleet.host_lost_after_s
        return HostRef(
            id=host.id, name=host.name, task_queue=host.task_queue, lost_after_s=lost_after_s
        )

    def _move(self, db: Db, step: MoveStep) -> HostRef:
        session = sessions.lock(db, step.session_id)
        target = hosts.get(db, step.host_id)
        if session.host_id != target.id:
            self._may_leave(db, session)
            change(db, SessionRow, session.id, host_id=target.id)
            moved = SessionMoved(
                session_id=session.id,
                from_host=session.host_id,
                to_host=target.id,
                user_id=step.user_id,
            )
            events.append(db, session.id, moved, row=("session", session.id))
            session.host_id = target.id
            attention.refresh(db, session)
        return self._ref(target)

    def _may_leave(self, db: Db, session: SessionRow) -> None:
        """Refuse while the old host still runs something of the session, or may come back to it."""
        old = hosts.find(db, session.host_id) if session.host_id else None
        silent_ms = hosts.away_ms(old) if old is not None else 0
        running = executions.open_of_session(db, session.id)
        terminals = ptys.live_count(db, session.id)
        if old is None or not (running or terminals):
            return
        if silent_ms < self._config().fleet.host_lost_after_s * 1000:
            raise Conflict(
                f"cannot move: {len(running)} commands and {terminals} terminals of this session "
                f"are on the host {old.name}; end them first",
                {"commands": len(running), "terminals": terminals, "host": old.name},
            )
        for call_id in running:
            executions.lose(db, call_id)


def no_host_words(folder: str, asked: list[str]) -> str:
    """The words of `no_host`."""
    names = ", ".join(asked)
    return f"no host has the folder {folder} (asked: {names})"


def _end_lost(db: Db, step: LostStep) -> LostCall:
    call = tool_calls.find(db, step.tool_call_id)
    assert call is not None, "a tool call is stored before it is made"
    if call.state not in tool_calls.OPEN:
        return LostCall(ended=True, failed=call.state == "failed")
    session = sessions.get(db, step.session_id)
    host = hosts.find(db, session.host_id) if session.host_id else None
    if host is not None and hosts.away_ms(host) == 0:
        return LostCall(ended=False)
    began = executions.lose(db, call.id) or call.state == "running"
    words = LOST_WORDS if began else NOT_STARTED_WORDS
    asked = messages.find(db, call.message_id) if call.message_id else None
    tool_calls.close(
        db,
        call,
        text=words,
        output={"error": words, "reason": "lost" if began else "host_away"},
        failed=True,
        invocation_id=asked.invocation_id if asked is not None else None,
    )
    return LostCall(ended=True)
