"""The model calls of a run over HTTP: page by page, with the id of every message of the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Call, Message
from holdfast.storage.sessions import calls, messages, requests
from tests.support.servers.api_server import ApiServer, Caller


@pytest.fixture
def session_id(caller: Caller, tmp_path: Path) -> str:
    return str(caller.session(caller.project(tmp_path / "work")["id"])["id"])


def ask(api: ApiServer, session_id: str, run_id: str, shown: list[Message]) -> str:
    """A call of the run that was shown these messages, as an activity stores it; its id."""

    def begin(db: Db) -> str:
        request = {"kind": requests.ROOT, "message_ids": requests.ranges(shown)}
        call = Call(
            id=new_id(),
            session_id=session_id,
            run_id=run_id,
            model="one",
            provider="stub",
            request_ref=blobs.commit(db, api.store.blobs.put_json(request)),
        )
        calls.begin(db, call)
        return call.id

    return api.store.write(begin)


@pytest.mark.req("F-014", "F-035")
def test_the_calls_of_a_run_name_every_message_they_were_shown(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    def say(db: Db) -> list[Message]:
        said = [messages.append(db, session_id, role="operator", content="x") for _ in range(5)]
        messages.append(db, session_id, role="operator", content="after the call")
        return said

    said = api.store.write(say)
    run_id = caller.send(session_id).json()["run"]["id"]
    made = [ask(api, session_id, run_id, said[:end]) for end in (5, 1, 3)]
    path = f"/sessions/{session_id}/runs/{run_id}/calls"
    first: dict[str, Any] = caller.http.get(path, params={"limit": 2}).json()
    rest = caller.http.get(path, params={"cursor": first["next_cursor"]}).json()
    shown = first["items"] + rest["items"]
    assert (len(first["items"]), rest["next_cursor"]) == (2, None)
    places = [(call["created_at"], call["id"]) for call in shown]
    assert places == sorted(places)
    named = {call["id"]: call["request"]["message_ids"] for call in shown}
    assert named == {
        made[0]: [message.id for message in said],
        made[1]: [said[0].id],
        made[2]: [message.id for message in said[:3]],
    }
    facts = shown[0]
    assert (facts["type"], facts["status"], facts["model"]) == ("root-agent", "started", "one")
    assert (facts["session_id"], facts["run_id"]) == (session_id, run_id)


def test_a_request_of_an_older_build_and_a_lost_one_are_shown_as_they_are(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    run_id = caller.send(session_id).json()["run"]["id"]
    old = {"kind": "root-agent", "message_ids": ["first", "last"]}

    def begin(db: Db) -> None:
        for name, reference in (
            ("1", blobs.commit(db, api.store.blobs.put_json(old))),
            ("2", f"sha256:{'0' * 64}"),
            ("3", None),
        ):
            calls.begin(
                db, Call(id=name, session_id=session_id, run_id=run_id, request_ref=reference)
            )

    api.store.write(begin)
    items = caller.http.get(f"/sessions/{session_id}/runs/{run_id}/calls").json()["items"]
    assert {call["id"]: call["request"] for call in items} == {"1": old, "2": None, "3": None}


@pytest.mark.req("K-002")
def test_calls_of_another_operator_or_of_no_run_are_not_found(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    run_id = caller.send(session_id).json()["run"]["id"]
    other = api.operator()
    path = f"/sessions/{session_id}/runs"
    assert other.http.get(f"{path}/{run_id}/calls").status_code == 404
    assert caller.http.get(f"{path}/unknown/calls").status_code == 404
    other.close()
