"""How long a frame takes from its commit to a socket: 50 clients on 16 sessions that stream.

The API and the writer are processes of their own, as in the product; the clients are here.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from websockets.asyncio.client import connect

from storage import frames
from storage.engine import Db
from storage.opening import open_store
from tests.bench.row import Row
from tests.support.api_server import ApiServer

SESSIONS, CLIENTS = 16, 50
DELTAS_PER_SECOND, BATCHES_PER_SECOND = 100, 20
SECONDS = 10
LAST = "last"


@dataclass(frozen=True)
class Setting:
    """Where the API is, and what is streamed."""

    url: str
    token: str
    session_ids: list[str]


@dataclass
class Heard:
    """What one client saw."""

    delays_s: list[float] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)


def measure() -> list[Row]:
    """The delay of every frame at every client, and whether each came once and in order."""
    home = Path(tempfile.mkdtemp(prefix="hf-bench-"))
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    api = spawn.Process(target=serve, args=(theirs, home), daemon=True)
    api.start()
    try:
        setting: Setting = ours.recv()
        writer = spawn.Process(target=write, args=(home, setting.session_ids), daemon=True)
        heard = asyncio.run(_listen(setting, writer))
        writer.join()
        ours.send("stop")
        api.join(timeout=30)
        return _rows(heard, ours.recv())
    finally:
        api.terminate()
        shutil.rmtree(home, ignore_errors=True)


def serve(pipe: Connection, home: Path) -> None:
    """The API in a process of its own; tells how much its memory grew."""
    store = open_store(None, home)
    api = ApiServer(store, home).start()
    caller = api.operator()
    project = caller.project(home / "work")
    ids = [caller.session(project["id"])["id"] for _ in range(SESSIONS)]
    pipe.send(Setting(f"ws://127.0.0.1:{api.port}", caller.token, ids))
    before = _memory_mib()
    pipe.recv()
    pipe.send(_memory_mib() - before)
    api.stop()
    store.close()


def write(home: Path, session_ids: list[str]) -> None:
    """Streams into every session as model calls do: a batch every 50 ms."""
    store = open_store(None, home)
    per_batch = DELTAS_PER_SECOND // BATCHES_PER_SECOND
    began = time.monotonic()
    for turn in range(SECONDS * BATCHES_PER_SECOND):
        for session_id in session_ids:
            text = LAST if turn == SECONDS * BATCHES_PER_SECOND - 1 else "word "

            def append(db: Db, session_id: str = session_id, text: str = text) -> None:
                pairs = [("delta", {"text": text, "at": time.time()})] * per_batch
                frames.append(db, session_id, *pairs)

            store.write(append)
        time.sleep(max(0.0, began + (turn + 1) / BATCHES_PER_SECOND - time.monotonic()))
    store.close()


async def _listen(setting: Setting, writer: multiprocessing.context.SpawnProcess) -> list[Heard]:
    ready = asyncio.Barrier(CLIENTS + 1)
    clients = [
        asyncio.create_task(_client(setting, setting.session_ids[n % SESSIONS], ready))
        for n in range(CLIENTS)
    ]
    await ready.wait()
    writer.start()
    return list(await asyncio.gather(*clients))


async def _client(setting: Setting, session_id: str, ready: asyncio.Barrier) -> Heard:
    address = f"{setting.url}/api/v1/sessions/{session_id}/socket?observe=1"
    headers = {"Authorization": f"Bearer {setting.token}"}
    heard = Heard()
    async with connect(address, additional_headers=headers, compression=None) as socket:
        await socket.send(json.dumps({"channel": "control", "type": "hello"}))
        await socket.recv()
        await ready.wait()
        per_batch = DELTAS_PER_SECOND // BATCHES_PER_SECOND
        while len(heard.seqs) < SECONDS * BATCHES_PER_SECOND * per_batch:
            frame = json.loads(await socket.recv())
            if frame["channel"] == "output":
                heard.delays_s.append(time.time() - frame["payload"]["at"])
                heard.seqs.append(frame["seq"])
    return heard


def _rows(heard: list[Heard], memory_mib: float) -> list[Row]:
    delays = sorted(delay for client in heard for delay in client.delays_s)
    p95 = statistics.quantiles(delays, n=20)[18] * 1000
    whole = sum(client.seqs == list(range(1, len(client.seqs) + 1)) for client in heard)
    return [
        Row("socket delay p50, 50 clients", statistics.median(delays) * 1000, "ms"),
        Row("socket delay p95, 50 clients", p95, "ms", goal="< 60"),
        Row("clients with every frame once, in order", whole, f"of {CLIENTS}", goal="= 50"),
        Row("API memory growth while streaming", memory_mib, "MiB", goal="flat"),
    ]


def _memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024 / 1024
