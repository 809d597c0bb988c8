"""A connector's side of chats over HTTP, and answers for the sessions behind them."""

from __future__ import annotations

from typing import Any

from holdfast.domain.commands import NewMessage
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Run
from holdfast.storage.sessions import messages, sessions
from tests.support.servers.api_server import Caller
from tests.support.waiting import wait_for

PATH = "/chats/ann@example/room-1"


def say(caller: Caller, content: str, **fields: Any) -> dict[str, Any]:
    """A message that is taken."""
    answer = caller.http.post(f"{PATH}/messages", json={"content": content, **fields})
    assert answer.status_code == 202, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def show(caller: Caller) -> dict[str, Any]:
    """The chat."""
    answer = caller.http.get(PATH)
    assert answer.status_code == 200, answer.text
    chat: dict[str, Any] = answer.json()
    return chat


def lines(caller: Caller) -> list[tuple[str, str]]:
    """The log: who said what."""
    items = caller.http.get(f"{PATH}/messages", params={"limit": 500}).json()["items"]
    return [(line["role"], line["content"]) for line in items]


def answer_run(caller: Caller, session_id: str, content: str) -> None:
    """Let the session's run end with an answer, and wait until the chat's log has it."""

    def reply(db: Db) -> None:
        run_id = sessions.get(db, session_id).active_run
        assert run_id is not None
        said = messages.append(db, session_id, role="primary", content=content, run_id=run_id)
        change(db, Run, run_id, primary_response=said.id, cost_usd=0.5)

    caller.api.store.write(reply)
    caller.api.double.finish(session_id)
    wait_for(lambda: ("assistant", content) in lines(caller), f"the answer {content!r}")


def state_of(caller: Caller, session_id: str) -> str:
    """The session's state."""
    return caller.api.store.read(lambda db: sessions.get(db, session_id)).state


def sent_to(caller: Caller) -> list[tuple[str, str]]:
    """What was sent to sessions for this operator, in order: the content and the session's id."""
    asked = [command for name, command in caller.api.double.asked if name == "message"]
    ids = [
        command.message_id
        for command in asked
        if isinstance(command, NewMessage) and command.user_id == caller.id
    ]

    def look(db: Db) -> list[tuple[str, str]]:
        found = [messages.find(db, message_id) for message_id in ids]
        return [(one.content, one.session_id) for one in found if one is not None]

    return caller.api.store.read(look)
