"""How fast the library is: appends beside plain sqlite3, searches by class, lists, and bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.search.finder import Search, find
from holdfast.storage.search.indexer import catch_up
from holdfast.storage.search.scope import Filters
from holdfast.storage.sessions import session_views
from holdfast.storage.upkeep.footprint import footprint
from tests.bench.rounds import TINY, middle, noise, p95
from tests.bench.row import Row
from tests.support.sample_library import SampleLibrary

SIZES = {"tiny": 500, "10k": 10_000, "100k": 100_000, "500k": 500_000}
SESSIONS = 500 if TINY else 10_000
BATCH = 100
ROUNDS = 4 if TINY else 40
_LIST = (
    "a ab ac ad al an ar as at be ca ce co com con de di do dis e ed el en er es ex fa fi for ful"
    " ga ge ha he hi i ic in ing ir is it ity ive ja ka la le li lo ly ma me men ment mi mo na ne"
    " ni no o on or ous out over pa pe per pi po pre pro qua ra re ri ro sa se si sion so st su"
    " ta te ter ti tion to tra tu u un under up va ve ver vi wa we wi work y"
)
SYLLABLES = _LIST.split()
_messages = table(Message)


def measure() -> list[Row]:
    """A corpus of SIZE messages (100k unless told), filled and asked."""
    name = "tiny" if TINY else os.environ.get("SIZE", "100k")
    size = SIZES[name]
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        store = open_store(None, home)
        try:
            return _measure(store, home, size, name)
        finally:
            store.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _measure(store: OpenStore, home: Path, size: int, name: str) -> list[Row]:
    chance = random.Random(1)
    vocabulary = _vocabulary(chance)
    library = SampleLibrary(store)
    sessions = _sessions(store, library)
    plain = _plain_rate(home, chance, vocabulary)
    batches, chars = _fill(store, sessions, chance, vocabulary, size)
    rate = size / sum(batches)
    began = time.perf_counter()
    done = catch_up(store, budget_s=36_000)
    indexing = size / (time.perf_counter() - began)
    assert done.behind == 0, done
    rows = [
        Row(f"append, batches of {BATCH}, {name}", rate, "messages/s", "plain sqlite3", plain,
            rate / plain, "≥ 2,000/s", f"batches {noise(batches)}"),
        Row(f"longest append of one batch, {name}", max(batches) * 1000, "ms", None, None, None,
            "< 1 s", f"p50 {middle(batches) * 1000:.1f} ms"),
        Row(f"indexing behind the watermark, {name}", indexing, "messages/s"),
    ]  # fmt: skip
    rows += _queries(store, library, chance, vocabulary, sessions, name)
    rows += _interleaved(store, library, sessions, chance, vocabulary, name)
    rows.append(_list_row(store, library, name))
    return rows + _bytes(store, size, chars, name)


def _vocabulary(chance: random.Random) -> list[str]:
    """Words of syllables, so that their trigrams repeat as those of a language do."""
    words: dict[str, None] = {}
    while len(words) < 30_000:
        words["".join(chance.choices(SYLLABLES, k=chance.choice((1, 2, 2, 3, 3, 4))))] = None
    return list(words)


def _text(chance: random.Random, vocabulary: list[str]) -> str:
    """Words as in speech: few are common, most are rare; about 550 characters."""
    picks = (int(len(vocabulary) * chance.random() ** 4) for _ in range(chance.randint(30, 120)))
    return " ".join(vocabulary[pick] for pick in picks)


def _sessions(store: OpenStore, library: SampleLibrary) -> list[str]:
    ids = [new_id() for _ in range(SESSIONS)]
    base = SessionRow(
        id="", project_id=library.project_id, created_by=library.operator_id, working_directory="/",
        dsl_hash="hash", source="cli",
    ).model_dump()  # fmt: skip
    at = now_ms()
    rows = [
        {**base, "id": key, "last_active": at + n, "created_at": at} for n, key in enumerate(ids)
    ]
    store.write(lambda db: db.connection().execute(insert(table(SessionRow)), rows))
    return ids


def _plain_rate(home: Path, chance: random.Random, vocabulary: list[str]) -> float:
    """The same rows into the same columns, with nothing of ours in between."""
    connection = sqlite3.connect(home / "plain.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    columns = [column.name for column in _messages.columns if column.name != "number"]
    connection.execute(f"CREATE TABLE m (number INTEGER PRIMARY KEY, {', '.join(columns)})")
    marks = ", ".join("?" for _ in columns)
    count = 5_000
    rows = [_row("s", n, _text(chance, vocabulary)) for n in range(count)]
    values = [[_plain(row[name]) for name in columns] for row in rows]
    began = time.perf_counter()
    for start in range(0, count, BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            f"INSERT INTO m ({', '.join(columns)}) VALUES ({marks})", values[start : start + BATCH]
        )
        connection.execute("COMMIT")
    rate = count / (time.perf_counter() - began)
    connection.close()
    return rate


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _row(session_id: str, seq: int, text: str) -> dict[str, Any]:
    role = ("operator", "primary", "tool")[seq % 3]
    message = Message(
        id=new_id(), session_id=session_id, seq=seq, role=role, content=text, created_at=now_ms()
    )
    return message.model_dump(exclude={"number"})


def _fill(
    store: OpenStore, sessions: list[str], chance: random.Random, vocabulary: list[str], size: int
) -> tuple[list[float], int]:
    """The seconds of each batch, and how many characters went in."""
    batches: list[float] = []
    chars = 0
    for start in range(0, size, BATCH):
        key = sessions[(start // BATCH) % len(sessions)]
        rows = [_row(key, start + n, _text(chance, vocabulary)) for n in range(BATCH)]
        chars += sum(len(row["content"]) for row in rows)
        began = time.perf_counter()
        store.write(lambda db, rows=rows: db.connection().execute(insert(_messages), rows))  # type: ignore[misc]
        batches.append(time.perf_counter() - began)
    return batches, chars


def _classes(vocabulary: list[str], sessions: list[str]) -> dict[str, Callable[[int], Any]]:
    rare = vocabulary[-4_000:]
    common = vocabulary[:40]
    middle = vocabulary[1_000:3_000]
    return {
        "rare word": lambda n: (rare[n], {}),
        "middling word": lambda n: (middle[n], {}),
        "common word": lambda n: (common[n % 40], {}),
        "two words": lambda n: (f"{middle[n]} {common[n % 40]}", {}),
        "either of two": lambda n: (f"{middle[n]} OR {rare[n]}", {}),
        "one without another": lambda n: (f"{middle[n]} NOT {common[n % 40]}", {}),
        "phrase": lambda n: (f'"{common[n % 40]} {common[(n * 7) % 40]}"', {}),
        "prefix": lambda n: (f"{middle[n][:4]}*", {}),
        "substring": lambda n: (rare[n][1:] if len(rare[n]) > 6 else f"{rare[n]}zq", {}),
        "nothing": lambda n: (f"qqzz{n}xx", {}),
        "in one session": lambda n: (common[n % 40], {"session_id": sessions[n]}),
        "of one role": lambda n: (common[n % 40], {"roles": ("tool",)}),
    }


def _queries(
    store: OpenStore,
    library: SampleLibrary,
    chance: random.Random,
    vocabulary: list[str],
    sessions: list[str],
    name: str,
) -> list[Row]:
    rows = []
    for label, make in _classes(vocabulary, sessions).items():
        times = []
        for n in range(ROUNDS):
            text, filters = make(n)
            search = Search(text, Filters(library.operator_id, **filters), limit=20)
            began = time.perf_counter()
            find(store, search)
            times.append((time.perf_counter() - began) * 1000)
        spread = f"{noise(times)}, p50 {middle(times):.1f} ms, worst {max(times):.1f} ms"
        title = f"search, {label}, {name}, p95"
        rows.append(Row(title, p95(times), "ms", None, None, None, "< 100 ms", spread))
    return rows


def _interleaved(
    store: OpenStore,
    library: SampleLibrary,
    sessions: list[str],
    chance: random.Random,
    vocabulary: list[str],
    name: str,
) -> list[Row]:
    """One message, then a search that has to find it: what a busy chat feels like."""
    times = []
    for n in range(ROUNDS):
        word = f"fresh{n}word"
        row = _row(sessions[0], 10_000_000 + n, f"{_text(chance, vocabulary)} {word}")
        store.write(lambda db, row=row: db.connection().execute(insert(_messages), [row]))  # type: ignore[misc]
        began = time.perf_counter()
        answer = find(store, Search(word, Filters(library.operator_id)))
        times.append((time.perf_counter() - began) * 1000)
        assert len(answer.items) == 1, word
    title = f"a message is found after its commit, {name}, p95"
    spread = f"{noise(times)}, p50 {middle(times):.1f} ms"
    return [Row(title, p95(times), "ms", None, None, None, "", spread)]


def _list_row(store: OpenStore, library: SampleLibrary, name: str) -> Row:
    wanted = session_views.Filter(library.operator_id)

    def listed(db: Db) -> Any:
        return session_views.page(db, wanted, limit=20)

    store.read(listed)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        store.read(listed)
        times.append((time.perf_counter() - began) * 1000)
    return Row(
        f"list of 20 of {SESSIONS:,} sessions, {name}, p50", middle(times), "ms", None, None, None,
        "< 2 ms", f"{noise(times)}, worst {max(times):.1f} ms",
    )  # fmt: skip


def _bytes(store: OpenStore, size: int, chars: int, name: str) -> list[Row]:
    report = footprint(store)["database"]
    text, same = chars / size, "the same text each time"
    return [
        Row(f"{label} for one message, {name}", report[key] / size, "bytes", "its text", text,
            report[key] / chars, goal, same)
        for label, key, goal in (
            ("all files", "bytes", "≤ 3 × the text"),
            ("indexes", "search_bytes", "≤ 1.2 × the text"),
        )
    ]  # fmt: skip
