"""Idempotency-Key: one act, one answer; at once, later, and after a restart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.commands import Command
from holdfast.domain.errors import HostIsAway
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.trouble import StoreAway
from holdfast.storage.projects import idempotency, operators
from tests.support.servers.api_server import ApiServer, Caller


def test_the_same_key_ten_times_at_once_and_after_a_restart_is_one_message(
    own_api: ApiServer, tmp_path: Path
) -> None:
    api, caller = own_api, own_api.operator()
    session = caller.session(caller.project(tmp_path / "work")["id"])
    key = {"Idempotency-Key": "once"}
    with ThreadPoolExecutor(10) as threads:
        sent = list(threads.map(lambda _: caller.send(session["id"], "x", **key), range(10)))
    assert {answer.status_code for answer in sent} == {202}
    assert len({answer.text for answer in sent}) == 1
    assert len(api.double.asked) == 1
    api.stop()
    api.start()
    repeated = caller.send(session["id"], "x", **key)
    assert repeated.text == sent[0].text
    assert repeated.headers["idempotency-replayed"] == "true"
    messages = caller.http.get(f"/sessions/{session['id']}/messages").json()["items"]
    assert len(messages) == 1
    caller.close()


def test_a_request_whose_answer_was_lost_is_done_again_under_the_same_command(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    session = caller.session(caller.project(tmp_path / "work")["id"])
    key = {"Idempotency-Key": "lost"}
    first = caller.send(session["id"], "x", **key)

    def forget(db: object) -> None:
        from sqlalchemy import text

        db.connection().execute(  # type: ignore[attr-defined]
            text("UPDATE idempotency_keys SET status = NULL, body = NULL")
        )

    api.store.write(forget)
    again = caller.send(session["id"], "x", **key)
    assert again.status_code == 202
    assert again.json()["message"]["id"] == first.json()["message"]["id"]
    asked = [command.command_id for _, command in api.double.asked[-2:]]
    assert asked == [first.json()["message"]["id"]] * 2


def test_a_command_that_was_refused_while_a_host_was_away_is_another_one_when_it_comes_again(
    own_api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, key = own_api.operator(), {"Idempotency-Key": "away"}
    session = caller.session(caller.project(tmp_path / "work")["id"])
    refused: set[str] = set()
    answered = own_api.double.send

    async def send(session: SessionRow, name: str, command: Command) -> Any:
        """As a workflow does: what it answered once it answers for ever."""
        if not refused or command.command_id in refused:
            refused.add(command.command_id)
            raise HostIsAway("the host north is away")
        return await answered(session, name, command)

    monkeypatch.setattr(own_api.double, "send", send)
    first, again = (caller.send(session["id"], "x", **key) for _ in range(2))
    assert (first.status_code, first.json()["error"]["code"]) == (503, "host_away")
    assert again.status_code == 202
    assert caller.send(session["id"], "x", **key).text == again.text
    caller.close()


def test_a_key_whose_owner_cannot_be_read_now_is_a_503(
    api: ApiServer, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = caller.session(caller.project(tmp_path / "work")["id"])

    def away(*_: object) -> None:
        raise StoreAway("the database does not answer; try again")

    with monkeypatch.context() as broken:
        broken.setattr(operators, "authenticate", away)
        answer = caller.send(session["id"], "x", **{"Idempotency-Key": "early"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert caller.send(session["id"], "x", **{"Idempotency-Key": "early"}).status_code == 202


def test_the_same_key_for_another_body_is_a_conflict(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "work")
    path = f"/projects/{project['id']}/sessions"
    key = {"Idempotency-Key": "k"}
    first = caller.http.post(path, json={"title": "a"}, headers=key)
    assert first.status_code == 201
    assert caller.http.post(path, json={"title": "b"}, headers=key).status_code == 409
    same = caller.http.post(path, json={"title": "a"}, headers=key)
    assert (same.status_code, same.json()) == (201, first.json())
    assert len(caller.http.get("/sessions").json()["items"]) == 1


def test_a_refusal_is_an_answer_too_and_keys_are_ones_own(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    session = caller.session(caller.project(tmp_path / "work")["id"])
    key = {"Idempotency-Key": "k"}
    caller.send(session["id"])
    refused = caller.send(session["id"], "x", **key)
    assert refused.status_code == 409
    api.double.finish(session["id"])
    assert caller.send(session["id"], "x", **key).text == refused.text
    other = api.operator()
    theirs = other.session(other.project(tmp_path / "theirs")["id"])
    assert other.send(theirs["id"], "x", **key).status_code == 202
    other.close()


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
def test_a_key_that_is_none_is_refused(caller: Caller, key: str) -> None:
    answer = caller.http.post(
        "/projects/load", json={"path": "/tmp"}, headers={"Idempotency-Key": key}
    )
    assert answer.status_code == 400


def test_keys_are_kept_for_a_day_on_both_databases(either_store: OpenStore) -> None:
    first = either_store.write(lambda db: idempotency.reserve(db, "o", "k", "hash"))
    assert first.status is None
    either_store.write(lambda db: idempotency.answer(db, "o", "k", status=201, body="{}"))
    either_store.write(lambda db: idempotency.answer(db, "o", "k", status=500, body="late"))
    again = either_store.write(lambda db: idempotency.reserve(db, "o", "k", "hash"))
    assert (again.status, again.body, again.command_id) == (201, "{}", first.command_id)
    assert either_store.write(lambda db: idempotency.sweep(db)) == 0
    assert either_store.write(lambda db: idempotency.sweep(db, keep_ms=-1000)) == 1
