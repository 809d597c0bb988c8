"""What the store promises to the library: the file, its contention rules, lists and replay."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from holdfast.domain.ids import new_id
from holdfast.storage.database import blobs, engine
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.database.tables import Call
from holdfast.storage.search.indexer import progress
from holdfast.storage.sessions import messages, session_views, sessions
from holdfast.storage.sessions.message_views import TurnShown, message_json, turn_json
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.sessions.usage import usage
from tests.support.sample_library import SampleLibrary
from tests.support.stored_rows import blob_row


@pytest.mark.req("H-001", "H-002", "H-003")
def test_one_file_with_its_log_beside_it_holds_everything(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    library.say(library.session(), "hello")
    library.found("hello")
    home = sqlite_store.home
    assert (home / "holdfast.sqlite").exists()
    assert (home / "holdfast.sqlite-wal").exists()
    with sqlite_store.reader.connect() as connection:
        names = set(inspect(connection).get_table_names())
        mode = connection.execute(text("PRAGMA journal_mode")).scalar()
    assert {"sessions", "messages", "search_words", "search_trigrams", "meta"} <= names
    assert "alembic_version" in names
    assert mode == "wal"


@pytest.mark.req("H-003")
def test_the_file_may_lie_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.sqlite"
    store = open_store(f"sqlite:///{path}", tmp_path / "home", synchronous="OFF")
    assert path.exists()
    store.close()


@pytest.mark.req("H-018", "H-021")
def test_a_writer_waits_a_second_retries_with_jitter_and_checkpoints_now_and_then(
    sqlite_store: OpenStore,
) -> None:
    with sqlite_store.writer.connect() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 1000
    assert (engine.RETRY_MIN_S, engine.RETRY_MAX_S) == (0.020, 0.150)
    assert engine.CHECKPOINT_EVERY_N_WRITES == 50
    assert engine.WRITE_BUDGET_S >= 15 * 1.15


@pytest.mark.req("H-021")
def test_every_fiftieth_write_empties_the_log_beside_the_file(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    found: list[str] = []
    really = sqlite_store._passive_checkpoint

    def look() -> None:
        really()
        found.append(newest_without_its_log(sqlite_store.home / "holdfast.sqlite"))

    monkeypatch.setattr(sqlite_store, "_passive_checkpoint", look)
    said = [library.say(session, f"line {number}").id for number in range(100)]
    assert [said.index(one) + 1 for one in found] == [48, 98], "two writes made library and session"


@pytest.mark.req("H-007")
def test_what_lists_and_lineage_ask_for_is_indexed(sqlite_store: OpenStore) -> None:
    with sqlite_store.reader.connect() as connection:
        indexes = inspect(connection).get_indexes("sessions")
    columns = {tuple(index["column_names"]): index["unique"] for index in indexes}
    assert columns[("created_by", "title")]
    assert ("parent_session_id",) in columns
    assert ("created_by", "archived", "last_active") in columns


@pytest.mark.req("F-041", "H-011", "H-013")
def test_appending_writes_nothing_into_the_index(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    library.say(session, "first")
    assert len(library.found("first")) == 1
    before = _index(sqlite_store)
    said = library.say(session, "second")
    assert _index(sqlite_store) == before
    assert progress(sqlite_store).behind == 1
    assert library.found("second") == {said.id}
    assert _index(sqlite_store) != before


@pytest.mark.req("F-041")
def test_a_blob_belongs_to_the_store_and_says_where_it_lies(sqlite_store: OpenStore) -> None:
    small = sqlite_store.blobs.put(b"x")
    sqlite_store.write(lambda db: blobs.commit(db, small))
    found = sqlite_store.read(lambda db: blob_row(db, small.id))
    assert found is not None
    # No path of a session, no size below which it would be kept elsewhere.
    assert (found.store, found.id) == ("file", f"sha256:{found.sha256}")
    assert found.key == f"sha256/{found.sha256[:2]}/{found.sha256[2:4]}/{found.sha256}"
    assert (sqlite_store.home / "blobs" / found.key).read_bytes() == b"x"


@pytest.mark.req("H-037", "H-038")
def test_usage_adds_up_by_model_and_names_the_ten_who_took_most(library: SampleLibrary) -> None:
    ids = [library.session(input_tokens=number, output_tokens=number) for number in range(1, 13)]

    def call(db: Db) -> None:
        for number, (model, status) in enumerate((("m", "actual"), ("m", "estimated"), ("n", ""))):
            row = Call(
                id=new_id(), session_id=ids[number], model=model, provider="p", status="done",
                input_tokens=10, output_tokens=5, cost_usd=0.25 if status else None,
                cost_status=status or None, created_at=1,
            )  # fmt: skip
            insert_once(db, Call, row.model_dump())

    library.store.write(call)
    report = library.store.read(lambda db: usage(db, library.operator_id))
    assert [row["session_id"] for row in report["top_sessions"]] == ids[:1:-1]
    by_model = {row["model"]: row for row in report["by_model"]}
    m, n = by_model["m"], by_model["n"]
    assert (m["calls"], m["sessions"], m["total_tokens"]) == (2, 2, 30)
    assert (m["actual_cost_usd"], m["estimated_cost_usd"], m["cost_status"]) == (
        0.25,
        0.25,
        "mixed",
    )
    assert (n["actual_cost_usd"], n["cost_status"], n["calls_without_cost"]) == (None, "unknown", 1)


@pytest.mark.req("H-019", "H-020", "H-022")
def test_a_write_outlasts_a_stranger_who_holds_the_file(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    stranger = dbapi_module().connect(
        str(sqlite_store.home / "holdfast.sqlite"), isolation_level=None, check_same_thread=False
    )
    stranger.execute("BEGIN IMMEDIATE")
    began = threading.Event()
    said: list[str] = []

    def write() -> None:
        began.set()
        said.append(library.say(session, "patience").id)

    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(30)
    stranger.execute("ROLLBACK")
    stranger.close()
    writer.join(30)
    assert library.found("patience") == set(said)


@pytest.mark.req("H-023", "H-025", "H-026", "H-027")
def test_messages_come_back_raw_and_as_a_conversation(library: SampleLibrary) -> None:
    parent, session = library.session(), new_id()
    given = {"id": session, "source": "discord", "model_override": "stub:one"}
    assert library.session(**given, parent_session_id=parent) == session
    call = {"id": "c1", "name": "shell", "arguments": {"command": "ls"}}
    library.say(session, "list it")
    meta = {"finish_reason": "tool_calls", "reasoning": "look first"}
    said = library.say(session, "", "primary", tool_calls=[call], tokens=7, meta=meta)
    library.say(session, "a b c", "tool", tool_call_id="c1", tool_name="shell")
    raw = [row for row, _ in library.store.read(lambda db: messages.page(db, session, limit=10))]
    assert [(row.role, row.content) for row in raw] == [
        ("operator", "list it"),
        ("primary", ""),
        ("tool", "a b c"),
    ]
    assert (raw[1].id, raw[1].tool_calls, raw[1].tokens) == (said.id, [call], 7)
    assert raw[1].meta == meta

    def replay(db: Db) -> list[TurnShown]:
        page = messages.page(db, session, limit=10)
        return [turn_json(message_json(message, causes)) for message, causes in page]

    asked, called, answered = library.store.read(replay)
    assert (asked["role"], asked["content"]) == ("user", "list it")
    assert (called["role"], called["tool_calls"]) == (
        "assistant",
        [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "shell", "arguments": '{"command": "ls"}'},
            }
        ],
    )
    assert (answered["role"], answered["tool_call_id"]) == ("tool", "c1")
    row = library.store.read(lambda db: sessions.get(db, session))
    assert (row.source, row.model_override) == ("discord", "stub:one")
    assert (row.created_by, row.parent_session_id) == (library.operator_id, parent)


@pytest.mark.req("H-036")
def test_a_list_shows_how_a_session_began_and_when_it_was_last_used(library: SampleLibrary) -> None:
    quiet, talked = library.session(), library.session()
    library.say(
        talked, "A first  question\nthat goes on for longer than a line of a list may be wide"
    )
    library.say(talked, "an answer", "primary")
    last = library.say(talked, "A second question")

    def listed(db: Db) -> list[SessionShown]:
        wanted = session_views.Filter(library.operator_id)
        return session_views.page(db, wanted, limit=20)[0]

    rows = {row["id"]: row for row in library.store.read(listed)}
    assert next(iter(rows)) == talked
    preview = rows[talked]["preview"]
    assert isinstance(preview, str)
    assert preview.startswith("A first question that goes on")
    assert len(preview) == 63
    assert rows[talked]["last_active"] == last.created_at
    assert rows[quiet]["last_active"] == rows[quiet]["created_at"]
    assert rows[quiet]["preview"] == ""


def newest_without_its_log(database: Path) -> str:
    """The id of the newest message in the file, as it is without the log beside it."""
    alone = database.with_name("alone.sqlite")
    shutil.copy(database, alone)
    with closing(dbapi_module().connect(str(alone))) as connection:
        newest = "SELECT id FROM messages ORDER BY number DESC LIMIT 1"
        return str(connection.execute(newest).fetchone()[0])


def _index(store: OpenStore) -> list[tuple[object, ...]]:
    """Every block of the index."""
    with store.reader.connect() as connection:
        rows = connection.execute(text("SELECT id, block FROM search_words_data ORDER BY id"))
        return [tuple(row) for row in rows]
