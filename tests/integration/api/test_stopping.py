"""A request that is under way when the server stops: an answer that says what to do."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx2

from api.gateway import STOPPING
from holdfast.domain.commands import Answer, Command
from holdfast.storage.database.tables import SessionRow
from tests.support.servers.api_server import ApiServer
from tests.support.sessions_double import SessionsDouble
from tests.support.waiting import wait_for


class SilentSessions(SessionsDouble):
    """A workflow that never answers."""

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Wait for ever."""
        self.asked.append((name, command))
        await asyncio.Event().wait()
        raise AssertionError


def test_a_request_under_way_is_answered_with_503_when_the_server_stops(
    own_api: ApiServer, tmp_path: Path
) -> None:
    caller = own_api.operator()
    session = caller.session(caller.project(tmp_path / "work")["id"])
    silent = SilentSessions(own_api.store)
    assert own_api.services is not None
    own_api.services.commands = silent
    answers: list[httpx2.Response] = []
    key: dict[str, Any] = {"Idempotency-Key": "one"}
    asking = threading.Thread(
        target=lambda: answers.append(caller.send(session["id"], "hello", **key))
    )
    asking.start()
    wait_for(lambda: silent.asked, "the request to be under way")
    own_api.stop()
    asking.join(timeout=120.0)
    assert answers[0].status_code == 503
    assert answers[0].json()["error"] == {"code": "unavailable", "message": STOPPING}
    assert answers[0].headers["retry-after"]
    caller.close()
