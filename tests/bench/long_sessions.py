"""What a long session costs: a step late in it beside an early one, its pages and its export."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import insert

from activities.context import Context, build
from activities.histories import Histories
from holdfast.agent.providers import close_clients, complete, resolve
from holdfast.agent.routes import Route
from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.sessions import messages, sessions
from holdfast.storage.transfer import export_document
from tests.bench.rounds import TINY, count, middle, noise
from tests.bench.row import Row
from tests.stub.openai_stub import OpenAIStub
from tests.support.step_runner import StepRunner

EARLY, LATE = 5, 50 if TINY else 500
READ = 500 if TINY else 20_000
CPU = "processor time"


def measure() -> list[Row]:
    """Steps and reading, in processor time of the thread that does them."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder, OpenAIStub() as stub:
        home = Path(folder)
        store = open_store(None, home / "home", synchronous="OFF")
        try:
            return [*_steps(store, home, stub), *_reading(store, home)]
        finally:
            store.close()


def _steps(store: OpenStore, home: Path, stub: OpenAIStub) -> list[Row]:
    config = Config.model_validate(
        {"providers": {"local": {"driver": "openai", "base_url": stub.base_url}}}
    )
    route = resolve(config, "local:stub-1")
    times = {size: _step(store, home / str(size), route, size) for size in (EARLY, LATE)}
    early, late = (middle(times[size]["step"]) for size in (EARLY, LATE))
    anew, kept = (middle(times[LATE][name]) for name in ("anew", "kept"))
    return [
        Row(f"context and request of step {LATE}, {CPU}", late, "ms", f"of step {EARLY}", early,
            late / early, "", noise(times[LATE]["step"])),
        Row(f"context of {2 * LATE:,} messages, {CPU}", kept, "ms", "read anew", anew,
            kept / anew, "< 4 ms", noise(times[LATE]["kept"])),
    ]  # fmt: skip


def _step(store: OpenStore, folder: Path, route: Route, size: int) -> dict[str, list[float]]:
    runner = StepRunner(store, folder, operator=f"operator-{size}")
    store.write(lambda db: _talk(db, runner.session_id, size))
    histories = Histories()

    def context(kept: Histories | None) -> Context:
        return store.read(
            lambda db: build(db, store.blobs, runner.config, runner.session_id, histories=kept)
        )

    context(histories)
    made = {
        "anew": [_cpu_ms(lambda: context(None)) for _ in range(count(15))],
        "kept": [_cpu_ms(lambda: context(histories)) for _ in range(count(15))],
    }

    async def steps() -> list[float]:
        times = []
        for _ in range(count(15) + 1):
            began = time.thread_time()
            built = context(histories)
            await complete(route, built.turns, built.tools, on_text=lambda _text: None)
            times.append((time.thread_time() - began) * 1000)
        await close_clients()
        return times[1:]  # the first one imports the provider's client

    return {**made, "step": asyncio.run(steps())}


def _talk(db: Db, session_id: str, size: int) -> None:
    messages.append(db, session_id, role="operator", content="Look at all of it.")
    for number in range(size):
        call = {"id": f"c{number}", "name": "read_file", "arguments": {"path": f"{number}.txt"}}
        messages.append(
            db, session_id, role="primary", content="I look.", tokens=99, tool_calls=[call]
        )
        messages.append(
            db, session_id, role="tool", content="a line of text\n" * 25,
            tool_call_id=call["id"], tool_name="read_file",
        )  # fmt: skip


def _reading(store: OpenStore, home: Path) -> list[Row]:
    runner = StepRunner(store, home / "read", operator="reader")
    store.write(lambda db: _fill(db, runner.session_id))
    path = home / "home" / "holdfast.sqlite"

    def page(db: Db) -> object:
        return messages.page(db, runner.session_id, limit=READ, include_superseded=True)

    def export(db: Db) -> object:
        session = sessions.get(db, runner.session_id)
        return json.dumps(export_document.document(db, store.blobs, session))

    def plain() -> object:
        with sqlite3.connect(path) as raw:
            raw.row_factory = sqlite3.Row
            return json.dumps([dict(row) for row in raw.execute("SELECT * FROM messages")])

    rounds = count(5)
    bare = [_cpu_ms(plain) for _ in range(rounds)]
    found = {
        f"page of {READ:,} messages, {CPU}": [
            _cpu_ms(lambda: store.read(page)) for _ in range(rounds)
        ],
        f"export of a session of {READ:,} messages, {CPU}": [
            _cpu_ms(lambda: store.read(export)) for _ in range(rounds)
        ],
    }
    limit = "plain sqlite3 and json"
    return [
        Row(name, middle(times), "ms", limit, middle(bare), middle(times) / middle(bare), "",
            noise(times))
        for name, times in found.items()
    ]  # fmt: skip


def _fill(db: Db, session_id: str) -> None:
    roles = ("operator", "primary", "tool")
    rows = [
        Message(
            id=new_id(), session_id=session_id, seq=number + 1, role=roles[number % 3],
            content="word of text " * 40, created_at=number,
        ).model_dump(exclude={"number"})
        for number in range(READ)
    ]  # fmt: skip
    db.connection().execute(insert(table(Message)), rows)
    change(db, SessionRow, session_id, message_seq=READ, message_count=READ)


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000
