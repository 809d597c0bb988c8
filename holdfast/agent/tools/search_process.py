"""The process that searches are forked from: each in a child that ends at its limits.

`python -m holdfast.agent.tools.search_process` has a socket as its standard input, from which its
children take two descriptors each: where to answer, and the folder. They are forked before they
are asked, since a fork takes longer than a usual search. All end when that socket is closed.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
from typing import Any

from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.searching import SIMPLER, search
from holdfast.folders.access import Judge
from holdfast.folders.confined import Confined

MEMORY_BYTES = 384 * 1024 * 1024
TIME_S = 10
OPEN_FILES = 512
WAITING = 2
NICENESS = 5
REQUEST_BYTES_MAX = 1024 * 1024
TOO_MUCH_MEMORY = f"The search needs more than {MEMORY_BYTES >> 20} MiB of memory; {SIMPLER}."


def serve(control: socket.socket) -> None:
    """Keep children waiting, each for one search, until nobody is there to ask."""
    os.nice(NICENESS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets ended children by itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which closes us
    gc.freeze()
    # Without events in the mask it wakes only when the other end of a descriptor is closed.
    ends = select.poll()
    ends.register(control, 0)
    waiting: set[int] = set()
    while True:
        while len(waiting) < WAITING:
            child = _fork(control)
            waiting.add(child)
            ends.register(child, 0)
        for descriptor, _ in ends.poll():
            if descriptor == control.fileno():
                return
            ends.unregister(descriptor)
            waiting.remove(descriptor)
            os.close(descriptor)


def _fork(control: socket.socket) -> int:
    """A child; the other end of the pipe is closed when it has taken a search, or died."""
    end, held = os.pipe()
    if os.fork() == 0:
        os.close(end)
        _be_child(control, held)
    os.close(held)
    return end


def _be_child(control: socket.socket, held: int) -> None:
    """One search; this process never returns."""
    try:
        _limit()
        _, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if len(descriptors) == 2:
            signal.setitimer(signal.ITIMER_REAL, TIME_S)
            os.close(held)
            answer_to, root = descriptors
            with socket.socket(fileno=answer_to) as answers:
                answers.sendall(json.dumps(_answer(_request(answers), root)).encode())
    finally:
        os._exit(0)


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, TIME_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        resource.setrlimit(what, (most, most))


def _request(answers: socket.socket) -> dict[str, Any]:
    received = bytearray()
    while chunk := answers.recv(1 << 16):
        received += chunk
        if len(received) > REQUEST_BYTES_MAX:
            raise ValueError("a request of more than a MiB")
    asked: dict[str, Any] = json.loads(received)
    return asked


def _answer(asked: dict[str, Any], root: int) -> dict[str, Any]:
    place = Confined(root, asked["root"], Judge.from_json(asked["judge"]))
    try:
        return {"found": search(place, asked)}
    except ToolProblem as problem:
        return {"problem": str(problem)}
    except MemoryError:
        return {"problem": TOO_MUCH_MEMORY}


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
