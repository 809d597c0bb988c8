"""Two machines that share nothing but Postgres, Temporal and S3: work goes on from either API.

What needs files of both machines (a rollback with files after a move, the memory of a project)
belongs here too: `Story` runs scripts and asks either API, `TwoMachines.put` makes files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.selftest.fleet.network import CLIENTS
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Lease
from holdfast.storage.upkeep.leadership import EVERY_S, LIFE_S, NAME
from holdfast.terminal import tls
from tests.support.servers.two_machines import NAMES, Story, TwoMachines
from tests.support.stored_rows import tool_calls_of
from tests.support.waiting import wait_for

OTHER = {"one": "two", "two": "one"}
PROJECT = "version: 1\nproject: both\nprimary: {cage: disabled}\n"
# Beside what is promised: a busy machine.
SLACK_S = 30.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def machines() -> Iterator[TwoMachines]:
    with TwoMachines() as made:
        yield made


@pytest.fixture
def story(machines: TwoMachines) -> Iterator[Story]:
    made = Story(machines)
    yield made
    made.close()
    machines.network.heal()


@pytest.fixture
def store(machines: TwoMachines, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStore]:
    for name, value in machines.objects.environment.items():
        monkeypatch.setenv(name, value)
    found = machines.store()
    yield found
    found.close()


@pytest.fixture(scope="module")
def sessions(machines: TwoMachines) -> dict[str, str]:
    """A session on each machine: the one with fewer sessions gets the next."""
    found: dict[str, str] = {}
    story = Story(machines)
    for name in NAMES:
        machines.put(name, "project/where", name)
        machines.put(name, "project/.holdfast/project.yaml", PROJECT)
    body = {"path": machines.seen("project"), "trust": True}
    project = story.post("one", "/projects/load", body)
    for api in NAMES:
        session = story.post(api, f"/projects/{project['id']}/sessions", {})
        story.run(api, session["id"], f"place{api}", {"call": "list_files"}, {"say": "There."})
        host = story.get(OTHER[api], f"/sessions/{session['id']}")["host"]
        found[host["name"]] = session["id"]
    story.close()
    assert set(found) == set(NAMES)
    return found


@pytest.mark.parametrize("machine", NAMES)
@pytest.mark.parametrize("far", [False, True], ids=["own API", "other API"])
def test_a_command_works_on_the_files_of_its_own_machine(
    story: Story, sessions: dict[str, str], store: OpenStore, machine: str, far: bool
) -> None:
    api, session_id = OTHER[machine] if far else machine, sessions[machine]
    # Once a session: a context with more than that would be compacted.
    lines = 100 if far else 20_000
    command = f"echo by-$(cat where) >> seen-{api}; cat seen-{api}; seq 1 {lines}"
    call = {"call": "shell", "arguments": {"command": command}}
    run_id = story.run(api, session_id, f"works{machine}{api}", call, {"say": "Done."})
    seen = story.machines.base / machine / "files" / "project" / f"seen-{api}"
    assert seen.read_text() == f"by-{machine}\n"
    for asked in NAMES:
        assert story.get(asked, "/search", q=f"works{machine}{api}")["items"]
    (row,) = store.read(lambda db: tool_calls_of(db, run_id))
    ref = row.output.get("output_ref")
    whole = row.output["output"] if ref is None else store.blobs.read(ref).decode()
    assert whole.splitlines() == [f"by-{machine}", *map(str, range(1, lines + 1))]
    assert (ref is None) == far


@pytest.mark.parametrize("machine", NAMES)
def test_a_terminal_is_opened_resized_read_and_closed_over_the_other_api(
    story: Story, sessions: dict[str, str], machine: str
) -> None:
    api, session_id = OTHER[machine], sessions[machine]
    body = {"command": "cat where; seq 1 500; sleep 600", "cols": 80, "rows": 24}
    opened = story.post(api, f"/sessions/{session_id}/ptys", body)
    path = f"/sessions/{session_id}/ptys/{opened['pty_id']}"
    assert story.post(api, f"{path}/resize", {"cols": 91, "rows": 31})["cols"] == 91
    whole = wait_for(lambda: _shown(story, api, path), "the terminal to show everything")
    assert whole is not None
    assert whole.startswith(f"{machine}".encode())
    assert story.clients[api].delete(path).status_code == 200
    for asked in NAMES:
        assert story.clients[asked].get(f"{path}/transcript").content == whole


def test_a_request_about_a_machine_that_fell_silent_is_refused_within_seconds(
    story: Story, sessions: dict[str, str], machines: TwoMachines
) -> None:
    body = {"command": "seq 1 500; sleep 600", "cols": 80, "rows": 24}
    opened = story.post("two", f"/sessions/{sessions['one']}/ptys", body)
    path = f"/sessions/{sessions['one']}/ptys/{opened['pty_id']}"
    wait_for(lambda: _shown(story, "two", path), "the terminal to show everything")
    machines.network.cut("one", "two")
    for _ in range(2):
        began = time.monotonic()
        answer = story.clients["two"].post(f"{path}/resize", json={"cols": 91, "rows": 31})
        assert answer.status_code == 503, answer.text
        assert time.monotonic() - began < tls.SILENCE_S + tls.DIAL_TIMEOUT_S + SLACK_S
    machines.network.heal()
    wait_for(lambda: _shown(story, "two", path), "the terminal to be reached again")
    assert story.clients["two"].delete(path).status_code == 200


def test_a_leader_whose_machine_falls_silent_is_replaced(
    story: Story, sessions: dict[str, str], machines: TwoMachines, store: OpenStore
) -> None:
    def leader() -> str | None:
        row = store.read(lambda db: db.get(Lease, NAME))
        pid = 0 if row is None else int(row.holder.split(":")[-2])
        return next((name for name in NAMES if machines.pid(name, "worker") == pid), None)

    first = wait_for(leader, "a leader")
    assert first is not None
    machines.network.cut(first)
    began = time.monotonic()
    wait_for(lambda: leader() == OTHER[first], "the other machine to lead")
    assert time.monotonic() - began < LIFE_S + EVERY_S + SLACK_S
    # It works alone, and tells of the host that is away.
    api = OTHER[first]
    story.run(api, sessions[api], f"alone{first}", {"call": "list_files"}, {"say": "Alone."})
    wait_for(lambda: _state(story, api, first) == "away", "the host to be away")
    machines.network.heal()
    wait_for(lambda: _state(story, api, first) == "up", "the host to be back")


def test_a_session_whose_clients_api_is_cut_off_goes_on_over_the_other(
    story: Story, sessions: dict[str, str], machines: TwoMachines
) -> None:
    machines.network.cut("one", CLIENTS)
    call = {"call": "shell", "arguments": {"command": "cat where"}}
    story.run("two", sessions["one"], "cutoff", call, {"say": "Done."})


def _state(story: Story, api: str, name: str) -> str:
    (found,) = [one for one in story.get(api, "/hosts")["items"] if one["name"] == name]
    return str(found["state"])


def _shown(story: Story, api: str, path: str) -> bytes | None:
    answer: Any = story.clients[api].get(f"{path}/transcript")
    return answer.content if answer.status_code == 200 and b"\n500\r" in answer.content else None
