"""How long a frame takes from its commit to a client: 50 clients on 16 sessions that stream.

The API is the product's own, in a process of its own, and so is the writer; the clients are here.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from sqlalchemy import event

from api import main
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.log import frames
from holdfast.storage.projects import operators
from holdfast.supervisor import ports
from tests.bench.light_socket import LightSocket
from tests.bench.rounds import TINY
from tests.bench.row import Row
from tests.support.sample_library import SampleLibrary
from tests.support.waiting import wait_for

SESSIONS, CLIENTS = 16, 50
DELTAS_PER_SECOND, BATCHES_PER_SECOND = 100, 20
SECONDS = 2 if TINY else 30
PER_BATCH = DELTAS_PER_SECOND // BATCHES_PER_SECOND
FRAMES = SECONDS * DELTAS_PER_SECOND
# How long nothing at all may come before the run is given up.
PATIENCE_S = 30.0
# When a batch was committed, by session and by its first seq.
Commits = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Usage:
    """What the API has used up."""

    memory_mib: float
    processor_s: float


@dataclass(frozen=True)
class Streamed:
    """One run: what every client heard and when, when it was committed, and what that cost."""

    clients: list[tuple[str, LightSocket]]
    commits: Commits
    began: Usage
    # A third of the way, when everything that is kept for good is there.
    warm: Usage
    ended: Usage


def measure() -> list[Row]:
    """The delay of every frame at every client, and whether each came once and in order."""
    home = Path(tempfile.mkdtemp(prefix="hf-bench-"))
    spawn = multiprocessing.get_context("spawn")
    (home / "config.toml").write_text('[server]\nlog_level = "warning"\n')
    store = open_store(None, home)
    library = SampleLibrary(store)
    session_ids = [library.session() for _ in range(SESSIONS)]
    token = store.write(lambda db: operators.issue_token(db, library.operator_id))
    port = ports.free_port()
    settings = Settings(home=home, bind=f"127.0.0.1:{port}", temporal_address="127.0.0.1:1")
    api = spawn.Process(target=main.run, args=(settings,), daemon=True)
    api.start()
    try:
        clients = _connect(port, token, session_ids)
        ours, theirs = spawn.Pipe()
        writer = spawn.Process(target=write, args=(theirs, home, session_ids), daemon=True)
        return _rows(_stream(api, writer, ours, clients))
    finally:
        api.terminate()
        api.join(timeout=30)
        store.close()
        shutil.rmtree(home, ignore_errors=True)


def write(pipe: Connection, home: Path, session_ids: list[str]) -> None:
    """Streams into every session as model calls do: a batch every 50 ms. Tells of its commits."""
    store = open_store(None, home)
    commits: Commits = {}
    pipe.send("ready")
    pipe.recv()
    began = time.monotonic()
    for turn in range(SECONDS * BATCHES_PER_SECOND):
        for session_id in session_ids:
            commits[session_id, turn * PER_BATCH + 1] = _append(store, session_id)
        time.sleep(max(0.0, began + (turn + 1) / BATCHES_PER_SECOND - time.monotonic()))
    pipe.send(commits)
    store.close()


def _append(store: OpenStore, session_id: str) -> float:
    """One batch; the moment at which its COMMIT returned."""
    moments: list[float] = []

    def append(db: Db) -> None:
        event.listen(db, "after_commit", lambda _db: moments.append(time.monotonic()), once=True)
        frames.append(db, session_id, *[("delta", {"text": "word "})] * PER_BATCH)

    store.write(append)
    return moments[-1]


def _connect(port: int, token: str, session_ids: list[str]) -> list[tuple[str, LightSocket]]:
    address = ("127.0.0.1", port)

    def attach(session_id: str) -> LightSocket | None:
        try:
            return LightSocket(address, f"/api/v1/sessions/{session_id}/socket?observe=1", token)
        except ConnectionRefusedError:
            return None  # the API is still starting

    clients = []
    for number in range(CLIENTS):
        session_id = session_ids[number % SESSIONS]
        found = wait_for(lambda: attach(session_id), "a socket", timeout_s=60.0)  # noqa: B023
        assert found is not None
        clients.append((session_id, found))
    return clients


def _stream(
    api: SpawnProcess,
    writer: SpawnProcess,
    pipe: Connection,
    clients: list[tuple[str, LightSocket]],
) -> Streamed:
    assert api.pid is not None
    writer.start()
    assert pipe.recv() == "ready"
    began = _usage(api.pid)
    pipe.send("go")
    _hear(clients, FRAMES // 3)
    warm = _usage(api.pid)
    _hear(clients, FRAMES)
    ended = _usage(api.pid)
    commits: Commits = pipe.recv()
    writer.join(timeout=30)
    for _, client in clients:
        client.close()
    return Streamed(clients, commits, began, warm, ended)


def _hear(clients: list[tuple[str, LightSocket]], count: int) -> None:
    """Until every client has this many frames, or has lost its connection."""
    with selectors.DefaultSelector() as selector:
        waiting = {client for _, client in clients if len(client.texts) < count}
        for client in waiting:
            selector.register(client, selectors.EVENT_READ)
        while waiting and (ready := selector.select(PATIENCE_S)):
            for key, _ in ready:
                found = key.fileobj
                assert isinstance(found, LightSocket)
                found.take()
                if found.closed or len(found.texts) >= count:
                    waiting.discard(found)
                if found.closed:
                    selector.unregister(found)


def _rows(run: Streamed) -> list[Row]:
    delays_ms, whole = [], 0
    for session_id, client in run.clients:
        heard = [(at, json.loads(text)) for at, text in client.texts]
        seqs = [frame["seq"] for _, frame in heard]
        whole += seqs == list(range(1, FRAMES + 1))
        for at, frame in heard:
            first = (frame["seq"] - 1) // PER_BATCH * PER_BATCH + 1
            delays_ms.append((at - run.commits[session_id, first]) * 1000)
    delays_ms.sort()
    cuts = statistics.quantiles(delays_ms, n=100)
    used = (run.ended.processor_s - run.began.processor_s) / SECONDS
    grown = run.ended.memory_mib - run.began.memory_mib
    late = run.ended.memory_mib - run.warm.memory_mib
    spread = f"p99 {cuts[98]:.0f} ms, worst {delays_ms[-1]:.0f} ms"
    return [
        Row(f"socket delay p50, {CLIENTS} clients", cuts[49], "ms"),
        Row(f"socket delay p95, {CLIENTS} clients", cuts[94], "ms", goal="< 60", noise=spread),
        Row("clients with every frame once, in order", whole, f"of {CLIENTS}", goal="= 50"),
        Row("API processor time for a second of it", used * 1000, "ms"),
        Row("API memory growth, last two thirds", late, "MiB", goal="flat",
            noise=f"{grown:.1f} MiB since the first frame"),
    ]  # fmt: skip


def _usage(pid: int) -> Usage:
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    page_bytes, ticks_per_s = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    return Usage(pages * page_bytes / 1024 / 1024, ticks / ticks_per_s)
