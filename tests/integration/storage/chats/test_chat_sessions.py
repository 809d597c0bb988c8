"""Chats: one suite over memory, SQLite and Postgres, and the manager in front of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.domain.errors import ValidationFailed
from holdfast.storage.chats import conversations
from holdfast.storage.chats.chat_session import ChatSession, now
from holdfast.storage.chats.conversations import Place, Wanted
from holdfast.storage.chats.database_store import DatabaseSessionStore, build_store
from holdfast.storage.chats.session_manager import SessionManager
from holdfast.storage.chats.session_store import MemorySessionStore, SessionStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from tests.support.sample_library import SampleLibrary


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def chats(request: pytest.FixtureRequest) -> SessionStore:
    """Each backend in turn."""
    if request.param == "memory":
        return build_store("memory", None, "one")
    store: OpenStore = request.getfixturevalue(f"{request.param}_store")
    return build_store("database", store, "one")


@pytest.mark.req("T-001", "T-009", "T-013")
async def test_a_saved_session_is_loaded_as_it_was(chats: SessionStore) -> None:
    await chats.setup()
    assert await chats.load("ann", "c1") is None
    session = ChatSession("s1", "ann", "c1", "/folder")
    assert (session.mode, session.is_active, session.message_count) == ("plan", True, 0)
    session.mode, session.total_cost = "auto", 0.5
    await chats.save(session)
    loaded = await chats.load("ann", "c1")
    assert loaded is not None
    assert (loaded.session_id, loaded.mode, loaded.total_cost) == ("s1", "auto", 0.5)
    assert abs(loaded.created_at - session.created_at) < timedelta(milliseconds=1)
    await chats.save(ChatSession("s2", "ann", "c1", "/folder"))
    replaced = await chats.load("ann", "c1")
    assert replaced is not None
    assert replaced.session_id == "s2"
    assert await chats.load("ann:c1", "") is None
    await chats.teardown()


@pytest.mark.req("T-001", "T-007", "T-011", "T-012")
async def test_a_deleted_session_is_not_loaded_and_may_be_followed_by_another(
    chats: SessionStore,
) -> None:
    await chats.save(ChatSession("s1", "ann", "c1", "/folder"))
    await chats.delete("ann", "c1")
    assert await chats.load("ann", "c1") is None
    await chats.delete("ann", "c1")
    await chats.save(ChatSession("s2", "ann", "c1", "/folder"))
    found = await chats.load("ann", "c1")
    assert found is not None
    assert found.session_id == "s2"


@pytest.mark.req("T-002", "T-003", "T-004", "T-005")
async def test_the_lookup_goes_through_memory_the_store_and_then_makes_one(
    chats: SessionStore,
) -> None:
    manager = SessionManager(chats)
    assert manager.get("ann", "c1") is None
    made = await manager.get_or_create("ann", "c1", "/folder")
    assert await chats.load("ann", "c1") is not None
    assert await manager.get_or_create("ann", "c1", "/other") is made
    assert manager.get("ann", "c1") is made
    restarted = SessionManager(chats)
    assert restarted.get("ann", "c1") is None
    again = await restarted.get_or_create("ann", "c1", "/other")
    assert (again.session_id, again.working_directory) == (made.session_id, "/folder")
    other = await restarted.get_or_create("bob", "c1", "/folder")
    assert other.session_id != made.session_id


@pytest.mark.req("T-003", "T-004")
async def test_two_first_messages_at_once_begin_one_session(chats: SessionStore) -> None:
    manager = SessionManager(chats)
    made = await asyncio.gather(*(manager.get_or_create("ann", "c1", "/folder") for _ in range(5)))
    assert {session.session_id for session in made} == {made[0].session_id}


@pytest.mark.req("T-003", "T-013")
async def test_two_processes_that_find_no_chat_make_one(either_store: OpenStore) -> None:
    library = SampleLibrary(either_store)
    place = Place(library.operator_id, "ann", "c1")

    def make(db: Db) -> str:
        return conversations.open_chat(db, either_store.home, place, Wanted())[1].id

    made = await asyncio.gather(*(either_store.awrite(make) for _ in range(4)))
    assert len(set(made)) == 1


@pytest.mark.req("T-001", "T-011")
async def test_names_are_never_mistaken_for_each_other(chats: SessionStore) -> None:
    await chats.save(ChatSession("s1", "a:b", "c", "/folder"))
    assert await chats.load("a", "b:c") is None
    await chats.delete("a", "b:c")
    assert await chats.load("a:b", "c") is not None


@pytest.mark.req("T-006", "T-007", "T-010")
async def test_results_modes_and_ends_are_stored(chats: SessionStore) -> None:
    manager = SessionManager(chats)
    session = await manager.get_or_create("ann", "c1", "/folder")
    before = session.last_used
    await manager.update_from_result(session, "conversation-1", 0.25)
    await manager.update_from_result(session, "conversation-1", 0.25)
    await manager.set_mode(session, "auto")
    with pytest.raises(ValidationFailed):
        await manager.set_mode(session, "yolo")
    stored = await chats.load("ann", "c1")
    assert stored is not None
    assert (stored.message_count, stored.total_cost, stored.mode) == (2, 0.5, "auto")
    assert stored.claude_session_id == "conversation-1"
    assert stored.last_used >= before.replace(microsecond=before.microsecond // 1000 * 1000)
    await manager.clear(session)
    cleared = await chats.load("ann", "c1")
    assert cleared is not None
    assert cleared.claude_session_id is None
    await manager.deactivate("ann", "c1")
    assert manager.get("ann", "c1") is None
    assert await chats.load("ann", "c1") is None
    fresh = await manager.get_or_create("ann", "c1", "/folder")
    assert fresh.session_id != session.session_id


@pytest.mark.req("T-008")
async def test_expiry_forgets_in_memory_only() -> None:
    store = MemorySessionStore()
    manager = SessionManager(store)
    old = await manager.get_or_create("ann", "c1", "/folder")
    await manager.get_or_create("bob", "c1", "/folder")
    old.last_used = now() - timedelta(hours=30)
    assert manager.cleanup_expired(24) == 1
    assert manager.get("ann", "c1") is None
    assert await store.load("ann", "c1") is old
    assert manager.get("bob", "c1") is not None


@pytest.mark.req("T-014", "T-015", "T-016")
async def test_the_log_is_append_only_and_ordered(either_store: OpenStore) -> None:
    chats = DatabaseSessionStore(either_store, "one")
    for number in range(3):
        role = "user" if number % 2 == 0 else "assistant"
        await chats.save_message("ann", "c1", role, f"line {number}", 0.1, 20, "s1")
    with pytest.raises(ValidationFailed):
        await chats.save_message("ann", "c1", "robot", "no")
    lines = await chats.get_messages("ann", "c1")
    assert [line.content for line in lines] == ["line 0", "line 1", "line 2"]
    assert (lines[1].role, lines[1].cost, lines[1].duration_ms) == ("assistant", 0.1, 20)
    assert [line.content for line in await chats.get_messages("ann", "c1", 1, 1)] == ["line 1"]
    assert await DatabaseSessionStore(either_store, "two").get_messages("ann", "c1") == []
    await chats.delete("ann", "c1")
    assert len(await chats.get_messages("ann", "c1")) == 3


@pytest.mark.req("T-018")
def test_backends_are_chosen_by_name() -> None:
    with pytest.raises(ValueError, match="no such backend"):
        build_store("paper", None, "one")
