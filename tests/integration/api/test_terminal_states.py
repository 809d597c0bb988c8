"""A terminal is active, detached or closed, wherever terminals are listed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.sessions import leases
from tests.integration.api.test_socket_terminals import hear_text, is_attached, open_pty
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.servers.terminal_hosts import TestHost
from tests.support.waiting import wait_for


@pytest.fixture
def session_id(
    api: ApiServer, caller: Caller, spare_host: TestHost, tmp_path: Path
) -> Iterator[str]:
    """A session whose terminals run in a real host."""
    assert api.services is not None
    settings = api.settings.model_copy(update={"terminal_socket": spare_host.socket})
    api.services.terminals._settings = settings
    found: str = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    yield found
    for pty in listed(caller, found):
        caller.http.delete(f"/sessions/{found}/ptys/{pty['pty_id']}")


def listed(caller: Caller, session_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = caller.http.get(f"/sessions/{session_id}/ptys").json()["items"]
    return items


def states(caller: Caller, session_id: str) -> set[str]:
    """The state of the session's terminals: in the list, and each by itself."""
    path = f"/sessions/{session_id}/ptys"
    found = listed(caller, session_id)
    alone = [caller.http.get(f"{path}/{pty['pty_id']}").json() for pty in found]
    return {pty["state"] for pty in [*found, *alone]}


@pytest.mark.req("K-045", "K-051", "K-134")
def test_a_terminal_is_active_while_an_operator_is_attached_and_detached_otherwise(
    caller: Caller, session_id: str, tmp_path: Path
) -> None:
    waits = "until test -e go; do sleep 0.05; done; echo while away; cat"
    pty_id = open_pty(caller, session_id, waits)
    assert states(caller, session_id) == {"detached"}
    socket, welcome = caller.attach(session_id)
    with socket:
        assert [pty["state"] for pty in welcome["payload"]["pending"]["ptys"]] == ["active"]
        assert states(caller, session_id) == {"active"}
    wait_for(lambda: not is_attached(caller, session_id), "the operator to be gone")
    assert states(caller, session_id) == {"detached"}
    observer, welcome = caller.attach(session_id, observe=True)
    with observer:
        assert [pty["state"] for pty in welcome["payload"]["pending"]["ptys"]] == ["detached"]
        (tmp_path / "work" / "go").touch()
        hear_text(observer, b"while away")
    socket, _ = caller.attach(session_id)
    with socket:
        hear_text(socket, b"while away")
        closed = caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}").json()
        assert (closed["state"], states(caller, session_id)) == ("closed", {"closed"})
    wait_for(lambda: not is_attached(caller, session_id), "the operator to be gone")
    assert states(caller, session_id) == {"closed"}


@pytest.mark.req("K-045")
def test_an_api_process_that_dies_detaches_its_terminals(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    open_pty(caller, session_id)
    elsewhere, name = "another-machine:1:nonce/client", leases.attach_lease(session_id)
    api.store.write(lambda db: leases.acquire(db, name, elsewhere, life_ms=3_000))
    assert states(caller, session_id) == {"active"}
    # Nobody renews the lease, as when the process that held it was killed.
    wait_for(lambda: states(caller, session_id) == {"detached"}, "the lease to expire")
