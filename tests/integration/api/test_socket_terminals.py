"""Terminals over HTTP and on the socket, with a real terminal host."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.log import events
from holdfast.terminal.client import TerminalClient
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until, say
from tests.support.servers.terminal_hosts import TestHost
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def host(api: ApiServer) -> Iterator[None]:
    """A terminal host at the socket that the API's settings name."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    settings = api.settings.model_copy(update={"terminal_socket": folder / "t.sock"})
    assert api.services is not None
    api.services.terminals._settings = settings

    async def start() -> None:
        client = await TerminalClient.connect(
            settings.terminal_socket, state_dir=settings.terminal_state_dir
        )
        await client.close_connection()

    async def stop() -> None:
        client = await TerminalClient.connect(
            settings.terminal_socket, state_dir=settings.terminal_state_dir, start=False
        )
        await client.shutdown(force=True)

    asyncio.run(start())
    yield
    asyncio.run(stop())
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_host(own_api: ApiServer) -> Iterator[TestHost]:
    """A terminal host that may be killed, with an API of its own."""
    assert own_api.services is not None
    with TestHost() as host:
        settings = own_api.settings.model_copy(update={"terminal_socket": host.socket})
        own_api.services.terminals._settings = settings
        yield host


@pytest.fixture
def session_id(host: None, caller: Caller, tmp_path: Path) -> str:
    found: str = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    return found


def open_pty(caller: Caller, session_id: str, command: str = "cat") -> str:
    answer = caller.http.post(
        f"/sessions/{session_id}/ptys", json={"command": command, "cols": 80, "rows": 24}
    )
    assert answer.status_code == 201, answer.text
    pty_id: str = answer.json()["pty_id"]
    return pty_id


def is_attached(caller: Caller, session_id: str) -> bool:
    return bool(caller.http.get(f"/sessions/{session_id}").json()["attached"])


def shown(frames: list[dict[str, Any]]) -> bytes:
    kinds = ("stdout", "snapshot")
    return b"".join(
        base64.b64decode(frame["payload"]["data"]) for frame in frames if frame["type"] in kinds
    )


def hear_text(socket: Any, words: bytes) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    while words not in shown(heard):
        heard.append(hear(socket))
    return heard


@pytest.mark.req("K-046", "K-047", "K-048", "K-146")
def test_a_terminal_opened_while_attached_can_be_typed_into(
    caller: Caller, session_id: str
) -> None:
    socket, _ = caller.attach(session_id)
    with socket:
        pty_id = open_pty(caller, session_id, "while read x; do echo $x: $(stty size).; done")
        data = base64.b64encode(b"hello terminal\n").decode()
        say(socket, "pty", "stdin", pty_id=pty_id, data=data)
        heard = hear_text(socket, b"hello terminal: 24 80.")
        assert "error" not in [frame["type"] for frame in heard]
        socket.send(json.dumps({"type": "resize", "pty_id": pty_id, "cols": 100, "rows": 30}))
        path = f"/sessions/{session_id}/ptys/{pty_id}"
        wait_for(lambda: caller.http.get(path).json()["cols"] == 100, "the size to be noted")
        say(socket, "pty", "stdin", pty_id=pty_id, data=base64.b64encode(b"now\n").decode())
        later = hear_text(socket, b".")
        assert b"now: 30 100." in shown(later)
        output = [frame["payload"] for frame in later if frame["type"] == "stdout"]
        assert {frame["pty_id"] for frame in output} == {pty_id}
        caller.http.delete(path)
        whole = caller.http.get(f"{path}/transcript").content
        for frame in output:
            # A seq is the position of a frame's first byte in all that the terminal has shown.
            assert whole[frame["seq"] :].startswith(base64.b64decode(frame["data"]))
        closed = hear_until(socket, "closed")[-1]
        assert closed["payload"]["pty_id"] == pty_id


@pytest.mark.req("K-051", "K-095", "K-134")
def test_whoever_comes_back_sees_what_the_terminal_shows(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    pty_id = open_pty(caller, session_id, "seq -f 'remembered %g' 30; cat")
    path = f"/sessions/{session_id}/ptys/{pty_id}/transcript"
    wait_for(lambda: b"remembered 30" in caller.http.get(path).content, "the output")

    def reattached() -> list[dict[str, Any]]:
        rows = api.store.read(lambda db: events.after(db, session_id, 0, limit=100))
        return [row.data for row in rows if row.kind == "pty.reattached"]

    for comings in range(3):
        socket, welcome = caller.attach(session_id)
        with socket:
            assert [pty["pty_id"] for pty in welcome["payload"]["pending"]["ptys"]] == [pty_id]
            burst = hear_text(socket, b"remembered 30")
            assert b"remembered 1\r\n" in shown(burst)
            # The first coming is no return; every other one tells what it was sent.
            expected = [{"pty_id": pty_id, "scrollback_lines_sent": 30}] * comings
            assert reattached() == expected
        wait_for(lambda: not is_attached(caller, session_id), "the lease to be free")
    observer, _ = caller.attach(session_id, observe=True)
    with observer:
        hear_text(observer, b"remembered 30")
        say(observer, "pty", "stdin", pty_id=pty_id, data="YQ==")
        assert hear_until(observer, "error")[-1]["payload"]["code"] == "forbidden"
    assert len(reattached()) == 2
    caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}")


def test_binary_frames_carry_terminal_bytes(caller: Caller, session_id: str) -> None:
    pty_id = open_pty(caller, session_id)
    socket, _ = caller.attach(session_id, binary_pty=True)
    name = pty_id.encode()
    with socket:
        socket.send(bytes((3, len(name))) + name + b"typed\n")
        heard = b""
        while heard.count(b"typed") < 1:
            data = socket.recv(timeout=120.0)
            if isinstance(data, bytes):
                assert data[0] in (1, 2)
                assert data[2 : 2 + data[1]] == name
                heard += data
    caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}")


@pytest.mark.req("K-050", "K-146")
def test_a_closed_terminal_leaves_its_transcript_in_three_forms(
    caller: Caller, session_id: str
) -> None:
    pty_id = open_pty(caller, session_id, "printf 'one\\ntwo\\n'; cat")
    path = f"/sessions/{session_id}/ptys/{pty_id}"
    wait_for(lambda: b"two" in caller.http.get(f"{path}/transcript").content, "the output")
    resized = caller.http.post(f"{path}/resize", json={"cols": 100, "rows": 30})
    assert (resized.json()["cols"], resized.json()["rows"]) == (100, 30)
    closed = caller.http.delete(path)
    assert (closed.status_code, closed.json()["state"]) == (200, "closed")
    assert caller.http.delete(path).status_code == 200
    assert caller.http.post(f"{path}/resize", json={"cols": 9, "rows": 9}).status_code == 409
    raw = caller.http.get(f"{path}/transcript", params={"format": "raw"}).content
    assert raw == b"one\r\ntwo\r\n"
    timed = caller.http.get(f"{path}/transcript", params={"format": "timed"}).text
    assert "".join(json.loads(line)["data"] for line in timed.splitlines()).encode() == raw
    cast = caller.http.get(f"{path}/transcript", params={"format": "cast"}).text.splitlines()
    header, *events = map(json.loads, cast)
    assert (header["version"], header["width"], header["height"]) == (2, 80, 24)
    assert "".join(text for _, kind, text in events if kind == "o").encode() == raw
    assert [size for _, kind, size in events if kind == "r"] == ["100x30"]


def test_a_host_that_dies_is_waited_for_and_its_terminals_are_told_lost(
    own_host: TestHost, own_api: ApiServer, tmp_path: Path
) -> None:
    caller = own_api.operator()
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    pty_id = open_pty(caller, session_id, "echo before; cat")
    socket, _ = caller.attach(session_id)
    with socket:
        hear_text(socket, b"before")
        own_host.kill()
        own_host.start()
        closed = hear_until(socket, "closed")[-1]["payload"]
        assert closed == {"pty_id": pty_id, "reason": "lost", "exit_code": None}
        open_pty(caller, session_id, "echo after; cat")
        hear_text(socket, b"after")
    caller.close()


@pytest.mark.req("K-052", "K-119")
def test_a_ninth_terminal_is_refused(caller: Caller, session_id: str) -> None:
    made = [open_pty(caller, session_id, "sleep 600") for _ in range(8)]
    answer = caller.http.post(f"/sessions/{session_id}/ptys", json={"cols": 80, "rows": 24})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    listed = caller.http.get(f"/sessions/{session_id}/ptys").json()["items"]
    assert {item["pty_id"] for item in listed} == set(made)
    for pty_id in made:
        assert caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}").status_code == 200


@pytest.mark.req("K-002")
def test_bad_requests_and_strangers_are_refused(
    api: ApiServer, caller: Caller, session_id: str, tmp_path: Path
) -> None:
    path = f"/sessions/{session_id}/ptys"
    for body in ({"cols": 0}, {"rows": 9999}, {"command": ""}, {"cols": "x"}, {"more": 1}):
        assert caller.http.post(path, json=body).status_code == 400, body
    assert caller.http.post(path, json={"subagent": "nobody"}).status_code == 404
    assert caller.http.get(f"{path}/unknown/transcript").status_code == 404
    assert caller.http.delete(f"{path}/unknown").status_code == 404
    pty_id = open_pty(caller, session_id)
    other = api.operator()
    mine = other.session(other.project(tmp_path / "other")["id"])["id"]
    for stranger in (path, f"/sessions/{mine}/ptys"):
        assert other.http.get(f"{stranger}/{pty_id}/transcript").status_code == 404
        assert other.http.delete(f"{stranger}/{pty_id}").status_code == 404
    other.close()
    caller.http.delete(f"{path}/{pty_id}")
