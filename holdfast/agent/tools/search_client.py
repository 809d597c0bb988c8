"""Asks the search process: started with the first search, and again when it is gone."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from holdfast.agent.tools.listing import BUDGET_S
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.folders.confined import Confined

MODULE = "holdfast.agent.tools.search_process"
# The search ends by itself after ten seconds; this is for a machine that is slow to start one.
ANSWER_WITHIN_S = 20.0
ANSWER_BYTES_MAX = 1024 * 1024
ENVIRONMENT_PASSED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE")
NO_ANSWER = (
    "The search ended without an answer: the pattern takes more time or memory than a search may "
    "use. Use a simpler pattern or a smaller folder."
)


class SearchClient:
    """One search process for all threads of this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def search(self, place: Confined, asked: dict[str, Any]) -> dict[str, Any]:
        """What was found; ToolProblem in the words of the search, or that it was too much."""
        request = {
            "budget_s": BUDGET_S,
            **asked,
            "root": place.path,
            "judge": place.judge.to_json(),
        }
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._begin(theirs, place.root)
            answer = _answered(ours, json.dumps(request).encode())
        if not answer:
            raise ToolProblem(NO_ANSWER)
        told = json.loads(answer)
        if "problem" in told:
            raise ToolProblem(told["problem"])
        found: dict[str, Any] = told["found"]
        return found

    def close(self) -> None:
        """End the search process; the next search starts another one."""
        with self._lock:
            self._stop()

    def _begin(self, answers: socket.socket, root: int) -> None:
        descriptors = [answers.fileno(), root]
        with self._lock:
            try:
                socket.send_fds(self._running(), [b"s"], descriptors)
            except OSError:
                self._stop()
                socket.send_fds(self._running(), [b"s"], descriptors)

    def _running(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                passed = {key: os.environ[key] for key in ENVIRONMENT_PASSED if key in os.environ}
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MODULE],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=passed,
                )
        return self._control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _answered(answers: socket.socket, request: bytes) -> bytes:
    received = bytearray()
    answers.settimeout(ANSWER_WITHIN_S)
    try:
        answers.sendall(request)
        answers.shutdown(socket.SHUT_WR)
        while len(received) <= ANSWER_BYTES_MAX and (chunk := answers.recv(1 << 16)):
            received += chunk
    except OSError:
        return b""
    return bytes(received) if len(received) <= ANSWER_BYTES_MAX else b""


SEARCHES = SearchClient()
atexit.register(SEARCHES.close)
