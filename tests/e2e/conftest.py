"""For tests that drive the product as a user does: sessions, and waiting for what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.waiting import wait_for


@pytest.fixture
def new_session(client: httpx2.Client, project: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Makes a session in the test's own project."""

    def make(**fields: Any) -> dict[str, Any]:
        answer = client.post(f"/projects/{project['id']}/sessions", json=fields)
        assert answer.status_code == 201, answer.text
        session: dict[str, Any] = answer.json()
        return session

    return make


@pytest.fixture
def session(new_session: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """One idle session."""
    return new_session()


@pytest.fixture
def in_state(client: httpx2.Client) -> Callable[..., dict[str, Any]]:
    """Waits until a session is in the state; the session as it is then."""

    def wait(session_id: str, state: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found: dict[str, Any] = client.get(f"/sessions/{session_id}").json()
            return found if found.get("state") == state else None

        found = wait_for(reached, f"session {session_id} to be {state}", timeout_s=timeout_s)
        assert found is not None
        return found

    return wait


@pytest.fixture
def run_message(client: httpx2.Client) -> Callable[..., dict[str, Any]]:
    """Sends a message and waits until its run is over; the run record."""

    def run(session_id: str, content: str, **fields: Any) -> dict[str, Any]:
        answer = client.post(
            f"/sessions/{session_id}/messages", json={"content": content, **fields}
        )
        assert answer.status_code == 202, answer.text
        path = f"/sessions/{session_id}/runs/{answer.json()['run']['id']}"

        def over() -> dict[str, Any] | None:
            found: dict[str, Any] = client.get(path).json()
            return found if found.get("state") in {"done", "failed", "cancelled"} else None

        found = wait_for(over, "the run to be over")
        assert found is not None
        return found

    return run
