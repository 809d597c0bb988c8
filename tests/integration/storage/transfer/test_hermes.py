"""Importing a Hermes `state.db`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.domain.errors import BadRequest, NotFound
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events
from holdfast.storage.sessions import messages, sessions
from holdfast.storage.sessions.lineage import lineage
from holdfast.storage.sessions.resolver import resolve
from holdfast.storage.sessions.usage import usage
from holdfast.storage.transfer import archive
from holdfast.storage.transfer.importers.importer import Source
from holdfast.storage.transfer.importers.table import import_from
from tests.support.hermes_sample import SECOND, write_state_db
from tests.support.imports import import_hermes
from tests.support.sample_library import SampleLibrary


@pytest.fixture
def state_db(tmp_path: Path) -> Path:
    """A small file as Hermes leaves it."""
    path = tmp_path / "state.db"
    write_state_db(path).close()
    return path


@pytest.mark.req("H-006", "H-008", "H-009", "H-026", "H-043")
def test_sessions_come_with_lineage_titles_usage_and_tool_calls(
    sqlite_store: OpenStore, state_db: Path
) -> None:
    library = SampleLibrary(sqlite_store)
    before = state_db.read_bytes()
    done = import_from(sqlite_store, library.operator_id, "hermes", Source(state_db))
    assert [(one["imported"], one["messages"]) for one in done] == [(True, 4), (True, 1)]
    first, second = (one["session_id"] for one in done)

    session = sqlite_store.read(lambda db: sessions.get(db, first))
    assert (session.title, session.source, session.state) == ("Trip", "telegram", "ended")
    assert (session.created_at, session.ended_at) == (1767268800500, 1767272400000)
    assert (session.end_reason, session.preview) == ("compression", "Plan a trip to Kyoto")
    assert (session.input_tokens, session.output_tokens, session.api_calls) == (100, 50, 3)
    assert (session.estimated_cost_usd, session.cost_status) == (0.25, "estimated")
    assert (session.message_count, session.tool_call_count) == (4, 1)

    page = sqlite_store.read(lambda db: messages.page(db, first, limit=10))
    said = [message for message, _ in page]
    assert [message.role for message in said] == ["operator", "primary", "tool", "primary"]
    assert said[0].created_at == 1767268801250
    assert said[0].meta["system_prompt"] == "Be kind."
    assert said[1].tool_calls == [
        {"id": "c1", "name": "terminal", "arguments": {"command": "ls kyoto"}}
    ]
    assert (said[2].tool_call_id, said[2].tool_name) == ("c1", "terminal")

    found = sqlite_store.read(lambda db: lineage(db, sessions.get(db, second)))
    assert [item["id"] for item in found["ancestors"]] == [first]
    by_alias = sqlite_store.read(lambda db: resolve(db, library.operator_id, SECOND))
    assert (by_alias.session.id, by_alias.matched_by) == (second, "alias")
    assert len(library.found("kyoto")) == 2
    by_model = sqlite_store.read(lambda db: usage(db, library.operator_id))["by_model"]
    assert [(row["model"], row["input_tokens"]) for row in by_model] == [("anthropic/claude", 110)]
    assert sqlite_store.read(lambda db: events.broken_link(db, first)) is None
    assert state_db.read_bytes() == before


LATER = """
CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL);
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL, model TEXT NOT NULL, billing_provider TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0, actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT);
ALTER TABLE sessions ADD COLUMN system_prompt_hash TEXT;
ALTER TABLE sessions ADD COLUMN title_source TEXT;
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cwd TEXT;
ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1;
ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN display_identity BLOB;
UPDATE schema_version SET version = 30;
INSERT INTO system_prompts VALUES ('h1', 'Be brief.');
UPDATE sessions SET system_prompt_hash = 'h1', title_source = 'llm', pinned = 1, archived = 1,
    billing_mode = 'api' WHERE id = '20260102_090000_def456';
INSERT INTO session_model_usage VALUES
    ('20260101_120000_abc123', 'claude', 'anthropic', 70, 30, 0.2, 0, 'estimated'),
    ('20260101_120000_abc123', 'gpt', 'openai', 30, 20, 0.05, 0.04, 'estimated');
INSERT INTO messages
    (session_id, role, content, timestamp, active, compacted, reasoning_details) VALUES
    ('20260102_090000_def456', 'user', 'taken back', 1767344402, 0, 0, NULL),
    ('20260102_090000_def456', 'assistant', 'summed up', 1767344403, 0, 1, '[{"text": "hm"}]');
"""


@pytest.mark.req("H-006", "H-008", "H-014")
def test_what_later_schemas_know_comes_along(library: SampleLibrary, state_db: Path) -> None:
    connection = sqlite3.connect(state_db)
    connection.executescript(LATER)
    parts = '\x00json:[{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}]'
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp, reasoning) VALUES"
        " (?, 'user', ?, 1767344404, ?), (?, 'user', CAST(X'6261FF64' AS TEXT), 1767344405, NULL)",
        (SECOND, parts, "a\x00b", SECOND),
    )
    connection.commit()
    connection.close()
    store = library.store
    assert isinstance(store, OpenStore)
    first, second = import_hermes(store, library.operator_id, state_db)

    session = store.read(lambda db: sessions.get(db, second))
    assert (session.title_source, session.archived, session.pinned) == ("auto", True, True)
    assert store.read(lambda db: sessions.get(db, first)).title_source == "user"
    page = store.read(lambda db: messages.page(db, second, limit=10, include_superseded=True))
    said = [message for message, _ in page]
    assert said[0].meta["system_prompt"] == "Be brief."
    assert said[0].meta["billing_mode"] == "api"
    assert [[why["cause"] for why in causes] for _, causes in page] == [
        [],
        ["rollback"],
        ["compaction"],
        [],
        [],
    ]
    assert said[2].meta["reasoning_details"] == [{"text": "hm"}]
    assert (said[3].content, said[3].meta["reasoning"]) == ("look\n[image_url]", "ab")
    assert said[4].content == "ba\ufffdd"
    report = store.read(lambda db: usage(db, library.operator_id))
    by_model = {row["model"]: row for row in report["by_model"]}
    assert by_model["claude"]["input_tokens"] == 70
    assert by_model["claude"]["estimated_cost_usd"] == pytest.approx(0.2)
    assert by_model["gpt"]["actual_cost_usd"] == pytest.approx(0.04)
    assert len(library.found("summed")) == 1


@pytest.mark.req("H-006", "H-035")
def test_a_child_finds_its_parent_whenever_it_began(library: SampleLibrary, state_db: Path) -> None:
    connection = sqlite3.connect(state_db)
    connection.execute("UPDATE sessions SET started_at = 1700000000 WHERE id = ?", (SECOND,))
    connection.execute(
        "INSERT INTO sessions (id, source, parent_session_id, started_at)"
        " VALUES ('lost', 'cli', 'deleted', 1767344409)"
    )
    connection.commit()
    connection.close()
    store = library.store
    assert isinstance(store, OpenStore)
    first, second, lost = import_hermes(store, library.operator_id, state_db)
    found = store.read(lambda db: lineage(db, sessions.get(db, second)))
    assert [item["id"] for item in found["ancestors"]] == [first]
    assert store.read(lambda db: sessions.get(db, lost)).parent_session_id is None


def test_importing_twice_adds_nothing(sqlite_store: OpenStore, state_db: Path) -> None:
    library = SampleLibrary(sqlite_store)
    told: list[int] = []
    source = Source(state_db)

    def tell(done: int, _: str) -> None:
        told.append(done)

    first = import_from(sqlite_store, library.operator_id, "hermes", source, told=tell)
    again = import_from(sqlite_store, library.operator_id, "hermes", source, told=tell)
    assert again == [{**one, "imported": False} for one in first]
    assert told == [1, 2]


def test_another_operator_may_import_the_same_file(sqlite_store: OpenStore, state_db: Path) -> None:
    SampleLibrary(sqlite_store)
    first = import_hermes(sqlite_store, "operator-one", state_db)
    second = import_hermes(sqlite_store, "operator-two", state_db)
    assert not set(first) & set(second)


@pytest.mark.req("H-043")
def test_ids_are_those_that_earlier_versions_made(sqlite_store: OpenStore, state_db: Path) -> None:
    SampleLibrary(sqlite_store)
    first, second = import_hermes(sqlite_store, "operator-one", state_db)
    assert (first, second) == ("01KDWPVNZMKC8ACC0TSR71T83Z", "01KDYYYSM0F4JAC96VRAE3FKFQ")
    said = sqlite_store.read(lambda db: messages.page(db, first, limit=1))
    assert said[0][0].id == "01KDWPVPQ22QESWA8Q1G2804N9"
    calls = sqlite_store.read(lambda db: archive.rows_of(db, first))["calls"]
    assert [call["id"] for call in calls] == ["01KDWPVNZMHXGMRWJPA47J7TQ6"]


@pytest.mark.req("H-014")
def test_what_is_not_a_current_state_db_is_refused(
    sqlite_store: OpenStore, state_db: Path, tmp_path: Path
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(BadRequest):
        import_hermes(sqlite_store, "one", text)
    with pytest.raises(NotFound):
        import_hermes(sqlite_store, "one", tmp_path / "absent.db")
    with pytest.raises(BadRequest):
        import_hermes(sqlite_store, "one", sqlite_store.home / "holdfast.sqlite")
    connection = sqlite3.connect(state_db)
    connection.execute("UPDATE schema_version SET version = 10")
    connection.commit()
    connection.close()
    with pytest.raises(BadRequest, match="schema 10"):
        import_hermes(sqlite_store, "one", state_db)
