"""Terminals through socket, API and host, beside the same program on a bare pseudo-terminal."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import time
import tty
from typing import Any

from websockets.sync.client import ClientConnection

from tests.bench.rounds import TINY, count, middle, noise, p99
from tests.bench.row import Row
from tests.bench.running import Measured, measured_product

MIB = 2 if TINY else 64
ECHO = "stty raw -echo; printf ready; exec cat"
FLOOD = f"stty raw; head -c {MIB * 1024 * 1024} /dev/zero | tr '\\0' x; sleep 0.2"


def measure() -> list[Row]:
    """The echo of a key, and how fast a flood comes through."""
    with measured_product() as measured:
        session_id = measured.session()
        ours, raw = _echo(measured, session_id), _raw_echo()
        rate, raw_rate = _flood(measured, session_id), _raw_flood()
    return [
        Row("echo of a key through the socket, p50", middle(ours), "ms", "bare pseudo-terminal",
            middle(raw), middle(ours) / middle(raw), "< 20 ms", noise(ours)),
        Row("echo of a key through the socket, p99", p99(ours), "ms", "bare pseudo-terminal",
            p99(raw), p99(ours) / p99(raw), "< 50 ms"),
        Row("flood of a terminal through the socket", rate, "MiB/s", "bare pseudo-terminal",
            raw_rate, rate / raw_rate),
    ]  # fmt: skip


def _open(measured: Measured, session_id: str, command: str) -> str:
    answer = measured.http.post(f"/sessions/{session_id}/ptys", json={"command": command})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["pty_id"]
    return found


def _shown(socket: ClientConnection, pty_id: str) -> tuple[str, bytes]:
    """The next frame of that terminal: its type and its bytes."""
    while True:
        frame: dict[str, Any] = json.loads(socket.recv(timeout=60.0))
        if frame["channel"] == "pty" and frame["payload"].get("pty_id") == pty_id:
            return frame["type"], base64.b64decode(frame["payload"].get("data", ""))


def _echo(measured: Measured, session_id: str) -> list[float]:
    times = []
    with measured.socket(session_id, observe=False) as socket:
        pty_id = _open(measured, session_id, ECHO)
        while b"ready" not in _shown(socket, pty_id)[1]:
            pass
        payload = {"pty_id": pty_id, "data": base64.b64encode(b"x").decode()}
        key = json.dumps({"channel": "pty", "type": "stdin", "payload": payload})
        for _ in range(count(300)):
            began = time.perf_counter()
            socket.send(key)
            while _shown(socket, pty_id)[0] != "stdout":
                pass
            times.append((time.perf_counter() - began) * 1000)
    measured.http.delete(f"/sessions/{session_id}/ptys/{pty_id}")
    return times


def _flood(measured: Measured, session_id: str) -> float:
    with measured.socket(session_id, observe=False) as socket:
        began = time.perf_counter()
        pty_id = _open(measured, session_id, FLOOD)
        while _shown(socket, pty_id)[0] != "closed":
            pass
        return MIB / (time.perf_counter() - began - 0.2)


def _raw_echo() -> list[float]:
    leader, follower = pty.openpty()
    tty.setraw(follower)
    child = subprocess.Popen(["cat"], stdin=follower, stdout=follower)
    os.close(follower)
    times = []
    for _ in range(count(300)):
        began = time.perf_counter()
        os.write(leader, b"x")
        os.read(leader, 100)
        times.append((time.perf_counter() - began) * 1000)
    child.kill()
    child.wait()
    os.close(leader)
    return times


def _raw_flood() -> float:
    leader, follower = pty.openpty()
    began = time.perf_counter()
    child = subprocess.Popen(["sh", "-c", FLOOD], stdin=follower, stdout=follower)
    os.close(follower)
    try:
        while os.read(leader, 65536):
            pass
    except OSError:
        pass  # what the kernel says when the other side is gone
    took = time.perf_counter() - began - 0.2
    child.wait()
    os.close(leader)
    return MIB / took
