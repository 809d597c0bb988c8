"""At the seam between replay and live nothing is missing and nothing comes twice."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.control_events import AttentionRequired
from holdfast.storage.database.engine import Db
from holdfast.storage.log import events, frames
from tests.support.servers.api_server import ApiServer, Caller, hear, say

LAST = "the last one"


class Writer(threading.Thread):
    """Appends output and events in small transactions, as runs do, and then one last of each."""

    def __init__(self, api: ApiServer, session_id: str, sizes: list[int]) -> None:
        super().__init__(daemon=True)
        self.api, self.session_id, self.sizes = api, session_id, sizes

    def run(self) -> None:
        for size in self.sizes:
            self._append(["x"] * size)
        self._append([LAST])

    def _append(self, texts: list[str]) -> None:
        def append(db: Db) -> None:
            frames.append(db, self.session_id, *(("delta", {"text": text}) for text in texts))
            for text in texts:
                event = AttentionRequired(
                    session_id=self.session_id, attention_kind="test", summary=text
                )
                events.append(db, self.session_id, event)

        self.api.store.write(append)


class Client(threading.Thread):
    """Attaches from the beginning at some moment, or from now at once."""

    def __init__(
        self,
        caller: Caller,
        session_id: str,
        results: list[dict[str, list[int]]],
        *,
        resume: bool,
        delay_s: float,
    ) -> None:
        super().__init__(daemon=True)
        self.caller, self.session_id, self.results = caller, session_id, results
        self.resume, self.delay_s = resume, delay_s
        self.welcomed = threading.Event()

    def run(self) -> None:
        hello: dict[str, Any] = {}
        if self.resume:
            self.welcomed.wait(self.delay_s)
            hello = {"resume_from_seq": {"output": 0, "events": 0}}
        heard = listen_from(self.caller, self.session_id, welcomed=self.welcomed, **hello)
        self.results.append(heard)


def listen_from(
    caller: Caller, session_id: str, *, welcomed: threading.Event | None = None, **hello: Any
) -> dict[str, list[int]]:
    """Every seq heard until both channels came to their last frame."""
    heard: dict[str, list[int]] = {"output": [], "events": []}
    over: set[str] = set()
    socket = caller.socket(f"/sessions/{session_id}/socket?observe=1")
    with socket:
        say(socket, "control", "hello", **hello)
        welcome = hear(socket)
        assert welcome["type"] == "welcome"
        if welcomed is not None:
            welcomed.set()
        heard["output"].append(_start(welcome, hello, "output"))
        heard["events"].append(_start(welcome, hello, "events"))
        while over != {"output", "events"}:
            frame = hear(socket)
            heard[frame["channel"]].append(frame["seq"])
            words = frame["payload"].get("text", frame["payload"].get("summary"))
            if words == LAST:
                over.add(frame["channel"])
    return heard


def _start(welcome: dict[str, Any], hello: dict[str, Any], channel: str) -> int:
    given_seqs = hello.get("resume_from_seq") or {}
    start: int = given_seqs.get(channel, welcome["payload"]["server_seq"][channel])
    return start


@pytest.mark.req("K-093")
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=25),
    resumes=st.lists(st.booleans(), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_whoever_attaches_while_others_write_gets_every_frame_once(
    api: ApiServer,
    caller: Caller,
    tmp_path: Path,
    sizes: list[int],
    resumes: list[bool],
    seed: int,
) -> None:
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    results: list[dict[str, list[int]]] = []
    chance = random.Random(seed)
    clients = [
        Client(caller, session_id, results, resume=resume, delay_s=chance.uniform(0, 0.05))
        for resume in resumes
    ]
    # Those who begin "now" must have begun before the last frame is written.
    for client in clients:
        if not client.resume:
            client.start()
            assert client.welcomed.wait(30)
    writer = Writer(api, session_id, sizes)
    writer.start()
    for client in clients:
        if client.resume:
            client.start()
    for thread in (*clients, writer):
        thread.join(timeout=120.0)
    assert len(results) == len(resumes)
    for heard in results:
        for seqs in heard.values():
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


@pytest.mark.req("K-149")
def test_replay_goes_on_after_a_restart_of_the_api(own_api: ApiServer, tmp_path: Path) -> None:
    caller = own_api.operator()
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    Writer(own_api, session_id, [5, 5]).run()
    own_api.stop()
    own_api.start()
    heard = listen_from(caller, session_id, resume_from_seq={"output": 3, "events": 2})
    assert heard["output"] == list(range(3, 12))
    caller.close()


def test_a_client_that_reads_nothing_delays_nobody(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    stuck, _ = caller.attach(session_id)
    writer = Writer(api, session_id, [1])
    big = [("delta", {"text": "x" * 60_000})]
    for _ in range(60):
        api.store.write(lambda db: frames.append(db, session_id, *big * 4))
    writer.start()
    heard = listen_from(caller, session_id, resume_from_seq={"output": 0, "events": 0})
    assert heard["output"] == list(range(243))
    stuck.socket.close()
