"""What the store promises to the library: the file, its contention rules, lists and replay."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from domain.ids import new_id
from storage import engine, messages, session_views, sessions
from storage.engine import Db
from storage.message_views import message_json, turn_json
from storage.opening import OpenStore, open_store
from storage.sqlite_driver import dbapi_module
from tests.support.library import Shelf


@pytest.mark.req("H-001", "H-002", "H-003")
def test_one_file_with_its_log_beside_it_holds_everything(sqlite_store: OpenStore) -> None:
    shelf = Shelf(sqlite_store)
    shelf.say(shelf.session(), "hello")
    shelf.found("hello")
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


@pytest.mark.req("H-018", "H-019", "H-021")
def test_a_writer_waits_a_second_retries_with_jitter_and_checkpoints_now_and_then(
    sqlite_store: OpenStore,
) -> None:
    with sqlite_store.writer.connect() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 1000
    assert (engine.RETRY_MIN_S, engine.RETRY_MAX_S) == (0.020, 0.150)
    assert engine.CHECKPOINT_EVERY_N_WRITES == 50
    assert engine.WRITE_BUDGET_S >= 15 * 1.15


@pytest.mark.req("H-019", "H-020", "H-022")
def test_a_write_outlasts_a_stranger_who_holds_the_file(sqlite_store: OpenStore) -> None:
    shelf = Shelf(sqlite_store)
    session = shelf.session()
    stranger = dbapi_module().connect(
        str(sqlite_store.home / "holdfast.sqlite"), isolation_level=None, check_same_thread=False
    )
    stranger.execute("BEGIN IMMEDIATE")
    began = threading.Event()
    said: list[str] = []

    def write() -> None:
        began.set()
        said.append(shelf.say(session, "patience").id)

    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(30)
    stranger.execute("ROLLBACK")
    stranger.close()
    writer.join(30)
    assert shelf.found("patience") == set(said)


@pytest.mark.req("H-023", "H-025", "H-026", "H-027")
def test_messages_come_back_raw_and_as_a_conversation(shelf: Shelf) -> None:
    session = shelf.session(source="discord", parent_session_id=new_id())
    call = {"id": "c1", "name": "shell", "arguments": {"command": "ls"}}
    shelf.say(session, "list it")
    shelf.say(session, "", "primary", tool_calls=[call])
    shelf.say(session, "a b c", "tool", tool_call_id="c1", tool_name="shell")

    def replay(db: Db) -> list[dict[str, object]]:
        page = messages.page(db, session, limit=10)
        return [turn_json(message_json(message, causes)) for message, causes in page]

    asked, called, answered = shelf.store.read(replay)
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
    assert shelf.store.read(lambda db: sessions.get(db, session)).source == "discord"


@pytest.mark.req("H-036")
def test_a_list_shows_how_a_session_began_and_when_it_was_last_used(shelf: Shelf) -> None:
    quiet, talked = shelf.session(), shelf.session()
    shelf.say(
        talked, "A first  question\nthat goes on for longer than a line of a list may be wide"
    )
    last = shelf.say(talked, "an answer", "primary")

    def listed(db: Db) -> list[dict[str, object]]:
        wanted = session_views.Filter(shelf.operator_id)
        return session_views.page(db, wanted, limit=20)[0]

    rows = {row["id"]: row for row in shelf.store.read(listed)}
    assert next(iter(rows)) == talked
    preview = rows[talked]["preview"]
    assert isinstance(preview, str)
    assert preview.startswith("A first question that goes on")
    assert len(preview) == 63
    assert rows[talked]["last_active"] == last.created_at
    assert rows[quiet]["last_active"] == rows[quiet]["created_at"]
    assert rows[quiet]["preview"] == ""
