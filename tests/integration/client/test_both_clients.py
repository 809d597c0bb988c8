"""The same story through Client and AsyncClient, against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Frame, Refused, Unreachable
from holdfast.client import exchanges
from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Unavailable
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import frames
from holdfast.storage.sessions import messages
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.servers.relay import Relay
from tests.support.sessions_double import SessionsDouble
from tests.support.waiting import wait_for

Open = Callable[[str, str], Client]
Session = dict[str, Any]


@pytest.fixture
def relay(api: ApiServer) -> Iterator[Relay]:
    """A network between the clients and the shared API."""
    with Relay(api.port) as running:
        yield running


@pytest.fixture
def holdfast(open_client: Open, relay: Relay, caller: Caller) -> Client:
    """The client under test, of a fresh operator."""
    return open_client(relay.url, caller.token)


@pytest.fixture
def session(holdfast: Client, tmp_path: Path) -> Session:
    (tmp_path / "work").mkdir()
    project = holdfast.load_project(str(tmp_path / "work"))
    made: Session = holdfast.create(project["id"], title="Parsers")
    return made


@pytest.fixture
def say(api: ApiServer, session: Session) -> Callable[..., None]:
    """Appends deltas to the session, as a model call does."""

    def append(*texts: str) -> None:
        pairs = [("delta", {"text": text}) for text in texts]
        api.store.write(lambda db: frames.append(db, session["id"], *pairs))

    return append


def texts(found: list[Frame]) -> list[str]:
    return [frame.payload["text"] for frame in found if frame.type == "delta"]


def add_message(api: ApiServer, session_id: str, content: str) -> None:
    api.store.write(lambda db: messages.append(db, session_id, role="operator", content=content))


def test_a_session_is_made_found_and_ended(holdfast: Client, session: Session) -> None:
    assert (session["state"], session["title"]) == ("idle", "Parsers")
    for name in (session["id"], session["id"][:-2], "Parsers"):
        assert holdfast.session(name)["id"] == session["id"]
    assert holdfast.end(session["id"])["state"] == "ended"
    assert holdfast.get("/sessions", state="ended", source=None)["items"][0]["id"] == session["id"]


def test_a_run_is_waited_for(api: ApiServer, holdfast: Client, session: Session) -> None:
    run = holdfast.send(session["id"], "hello")["run"]
    with pytest.raises(TimeoutError, match="is still running"):
        holdfast.wait_for_run(session["id"], run["id"], timeout_s=0.0)
    api.double.finish(session["id"])
    assert holdfast.wait_for_run(session["id"], run["id"])["state"] == "done"
    other = holdfast.send(session["id"], "and now?", model_override="stub:two")["run"]
    holdfast.cancel(session["id"], other["id"])
    assert holdfast.wait_for_run(session["id"], other["id"])["state"] == "cancelled"
    assert holdfast.session(session["id"])["model_override"] == "stub:two"


def test_ask_yields_frames_until_its_run_is_over(
    api: ApiServer, holdfast: Client, session: Session, say: Callable[..., None]
) -> None:
    say("said before")
    found: list[Frame] = []
    for frame in holdfast.ask(session["id"], "hello"):
        found.append(frame)
        if frame.type == "accepted":
            assert frame.payload["session"]["state"] == "running"
            say("one ", "two")
            api.double.finish(session["id"])
    assert (found[0].channel, found[0].type) == ("control", "accepted")
    assert texts(found) == ["one ", "two"]
    assert found[-1].type == "run.completed"
    assert found[-1].payload["run_id"] == found[0].payload["run"]["id"]


def test_ask_goes_on_when_the_connection_is_cut(
    api: ApiServer, relay: Relay, holdfast: Client, session: Session, say: Callable[..., None]
) -> None:
    found: list[Frame] = []
    for frame in holdfast.ask(session["id"], "hello"):
        found.append(frame)
        if frame.type == "accepted":
            say("one ")
        elif texts([frame]) == ["one "]:
            relay.cut()
            say("two ", "three")
            api.double.finish(session["id"])
    assert texts(found) == ["one ", "two ", "three"]
    assert found[-1].type == "run.completed"


def test_a_stream_that_is_cut_misses_nothing_and_repeats_nothing(
    relay: Relay, holdfast: Client, session: Session, say: Callable[..., None]
) -> None:
    say("zero ")
    start = {"output": 0, "events": 0}
    found: list[Frame] = []
    with closing(holdfast.stream(session["id"], resume_from=start)) as stream:
        for frame in stream:
            found.append(frame)
            match texts([frame]):
                case ["zero "]:
                    relay.cut()
                    say("one ", "two ")
                case ["two "]:
                    relay.cut()
                    say("three")
                case ["three"]:
                    break
    assert texts(found) == ["zero ", "one ", "two ", "three"]
    for channel in ("output", "events"):
        seqs = [frame.seq for frame in found if frame.channel == channel]
        assert seqs == list(range(1, len(seqs) + 1))
    assert stream.seen["output"] == 4


def test_a_later_stream_goes_on_where_an_earlier_one_was(
    holdfast: Client, session: Session, say: Callable[..., None]
) -> None:
    earlier = holdfast.stream(session["id"])
    for frame in earlier:
        if frame.type == "welcome":
            say("one ")
        elif frame.type == "delta":
            break
    earlier.close()
    say("two")
    later = holdfast.stream(session["id"], resume_from=earlier.seen)
    assert next(frame.payload["text"] for frame in later if frame.type == "delta") == "two"
    later.close()


def test_a_message_whose_answer_was_lost_is_taken_once(
    relay: Relay, holdfast: Client, session: Session
) -> None:
    relay.answers_to_lose = 2
    accepted = holdfast.send(session["id"], "hello")
    assert relay.answers_to_lose == 0
    assert accepted["session"]["state"] == "running"
    assert [one["content"] for one in holdfast.messages(session["id"])] == ["hello"]
    runs = holdfast.items(f"/sessions/{session['id']}/runs")
    assert [run["id"] for run in runs] == [accepted["run"]["id"]]


class UnavailableOnce(SessionsDouble):
    """Workflows that do not answer the first time."""

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Refuse the first command for a while."""
        if not self.asked:
            self.asked.append((name, command))
            raise Unavailable("Temporal does not answer")
        return await super().send(session, name, command)


def test_a_message_is_sent_again_when_the_server_is_unavailable(
    own_api: ApiServer, open_client: Open, tmp_path: Path
) -> None:
    caller = own_api.operator()
    session = caller.session(caller.project(tmp_path / "work")["id"])
    double = UnavailableOnce(own_api.store)
    assert own_api.services is not None
    own_api.services.commands = double
    accepted = open_client(own_api.url, caller.token).send(session["id"], "hello")
    assert accepted["message"]["content"] == "hello"
    assert len(double.asked) == 2
    caller.close()


def test_a_message_is_sent_again_while_the_server_restarts(
    own_api: ApiServer, open_client: Open, tmp_path: Path
) -> None:
    caller = own_api.operator()
    session = caller.session(caller.project(tmp_path / "work")["id"])
    caller.close()
    with Relay(own_api.port) as relay:
        own_api.stop()

        def start_after_two_attempts() -> None:
            wait_for(lambda: relay.attempts >= 2, "the message to be sent again")
            own_api.start()

        starting = threading.Thread(target=start_after_two_attempts)
        starting.start()
        holdfast = open_client(relay.url, caller.token)
        accepted = holdfast.send(session["id"], "hello", idempotency_key="mine")
        assert holdfast.send(session["id"], "hello", idempotency_key="mine") == accepted
        starting.join(timeout=120.0)


def test_a_refusal_carries_status_code_and_words(holdfast: Client, session: Session) -> None:
    with pytest.raises(Refused, match="Session not found") as caught:
        holdfast.session("absent")
    assert (caught.value.status, caught.value.code) == (404, "not_found")
    assert caught.value.as_json()["error"]["message"] == caught.value.message
    with pytest.raises(Refused) as caught:
        holdfast.post("/projects/load", {"path": 3})
    assert (caught.value.status, caught.value.code) == (400, "validation_failed")
    assert caught.value.details["errors"]
    holdfast.send(session["id"], "hello")
    with pytest.raises(Refused) as caught:
        holdfast.send(session["id"], "hello again")
    assert caught.value.status == 409
    for refused in (holdfast.ask("absent", "hello"), holdfast.lines("/sessions/absent/events")):
        with pytest.raises(Refused) as caught:
            list(refused)
        assert caught.value.code == "not_found"


def test_a_message_to_an_ended_session_is_refused(holdfast: Client, session: Session) -> None:
    holdfast.end(session["id"])
    with pytest.raises(Refused) as caught:
        list(holdfast.ask(session["id"], "still there?"))
    assert caught.value.status == 410


def test_a_wrong_token_is_refused(open_client: Open, relay: Relay, session: Session) -> None:
    stranger = open_client(relay.url, "not a token")
    for attempt in (
        lambda: stranger.get("/sessions"),
        lambda: list(stranger.stream(session["id"])),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.status == 401


def test_nobody_at_the_address_is_unreachable(open_client: Open) -> None:
    nobody = open_client("http://127.0.0.1:9", "token")
    for attempt in (lambda: nobody.get("/sessions"), lambda: list(nobody.lines("/export"))):
        with pytest.raises(Unreachable, match=r"no answer from http://127\.0\.0\.1:9: ."):
            attempt()


def test_items_come_page_after_page(
    holdfast: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "PAGE", 2)
    made = [session["id"]]
    made += [holdfast.create(session["project_id"])["id"] for _ in range(4)]
    assert sorted(one["id"] for one in holdfast.items("/sessions")) == sorted(made)
    assert len(holdfast.items("/sessions", items_max=3)) == 3
    found = holdfast.items("/sessions", q="Parsers")
    assert [one["id"] for one in found] == [session["id"]]


def test_messages_come_page_after_page(
    api: ApiServer, holdfast: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "PAGE", 2)
    for number in range(5):
        add_message(api, session["id"], f"message {number}")
    found = holdfast.messages(session["id"])
    assert [one["content"] for one in found] == [f"message {number}" for number in range(5)]
    assert holdfast.messages(session["id"], since=found[2]["id"]) == found[3:]


@pytest.mark.req("H-039")
def test_lines_come_as_they_are_written_and_end_at_newlines_only(
    api: ApiServer, holdfast: Client, session: Session
) -> None:
    content = "a\u2028b\x85c" * 9_000
    add_message(api, session["id"], content)
    add_message(api, holdfast.create(session["project_id"])["id"], content)
    exported = [json.loads(line) for line in holdfast.lines("/export", source=None)]
    assert [one["progress"]["done"] for one in exported] == [1, 2]
    assert [one["messages"][0]["content"] for one in exported] == [content, content]
    assert list(holdfast.lines("/export", source="nobody")) == []
