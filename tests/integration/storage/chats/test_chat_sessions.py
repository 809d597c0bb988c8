"""Stores of chat sessions: one suite over memory, SQLite and Postgres, and the manager on each."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.domain.errors import ValidationFailed
from holdfast.storage.chats import chat_log, delivery, rows
from holdfast.storage.chats.backends import backend
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage, Place, now
from holdfast.storage.chats.conversations import Wanted, answering
from holdfast.storage.chats.database_store import DatabaseSessionStore
from holdfast.storage.chats.delivery import Incoming
from holdfast.storage.chats.session_manager import ChatEnded, SessionManager
from holdfast.storage.chats.session_store import SessionStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from tests.support.sample_library import SampleLibrary


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def manager(request: pytest.FixtureRequest) -> SessionManager:
    """A manager on each backend in turn."""
    in_memory = request.param == "memory"
    database: OpenStore = request.getfixturevalue(
        "sqlite_store" if in_memory else f"{request.param}_store"
    )
    chosen = backend("memory" if in_memory else "database")
    return SessionManager(chosen(database, "one"), database)


@pytest.fixture
def chats(manager: SessionManager) -> SessionStore:
    """Each backend in turn."""
    return manager.store


@pytest.mark.req("T-001", "T-009", "T-013")
async def test_a_saved_session_is_loaded_as_it_was(chats: SessionStore) -> None:
    await chats.setup()
    assert await chats.load("ann", "c1") is None
    session = ChatSession("s1", "ann", "c1", "/folder")
    assert (session.mode, session.is_active, session.message_count) == ("plan", True, 0)
    session.mode, session.total_cost = "auto", 0.5
    await chats.save(session)
    assert await chats.load("ann", "c1") == session
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


@pytest.mark.req("T-012")
@pytest.mark.parametrize("by", ["the manager", "the store"])
async def test_a_deleted_session_stays_in_the_database(either_store: OpenStore, by: str) -> None:
    chats = DatabaseSessionStore(either_store, "one")
    manager = SessionManager(chats, either_store)
    await manager.get_or_create("ann", "c1", "/folder")
    await (manager.deactivate if by == "the manager" else chats.delete)("ann", "c1")
    assert await chats.load("ann", "c1") is None
    assert either_store.read(lambda db: rows.known(db, Place("one", "ann", "c1")))


@pytest.mark.req("T-002", "T-003", "T-004", "T-005")
async def test_the_lookup_goes_through_memory_the_store_and_then_makes_one(
    manager: SessionManager, sqlite_store: OpenStore
) -> None:
    assert manager.get("ann", "c1") is None
    made = await manager.get_or_create("ann", "c1", "/folder")
    assert await manager.store.load("ann", "c1") == made
    assert await manager.get_or_create("ann", "c1", "/other") is made
    assert manager.get("ann", "c1") is made
    restarted = SessionManager(manager.store, sqlite_store)
    assert restarted.get("ann", "c1") is None
    again = await restarted.get_or_create("ann", "c1", "/other")
    assert (again.session_id, again.working_directory) == (made.session_id, "/folder")
    other = await restarted.find("bob", "c1")
    assert other is None


@pytest.mark.req("T-003", "T-004")
async def test_two_first_messages_at_once_begin_one_session(manager: SessionManager) -> None:
    made = await asyncio.gather(*(manager.get_or_create("ann", "c1", "/folder") for _ in range(5)))
    assert {session.session_id for session in made} == {made[0].session_id}


@pytest.mark.req("T-003", "T-013")
async def test_two_processes_that_find_no_chat_make_one(either_store: OpenStore) -> None:
    library = SampleLibrary(either_store)
    place = Place(library.operator_id, "ann", "c1")

    def begin(db: Db, chat: ChatSession) -> None:
        answering(db, either_store.home, place, chat, Wanted())

    managers = [
        SessionManager(DatabaseSessionStore(either_store, library.operator_id), either_store)
        for _ in range(4)
    ]
    made = await asyncio.gather(*(one.get_or_create("ann", "c1", "", begin) for one in managers))
    assert len({chat.session_id for chat in made}) == 1
    assert made[0].claude_session_id == made[0].session_id


@pytest.mark.req("T-001", "T-011")
async def test_names_are_never_mistaken_for_each_other(chats: SessionStore) -> None:
    await chats.save(ChatSession("s1", "a:b", "c", "/folder"))
    assert await chats.load("a", "b:c") is None
    await chats.delete("a", "b:c")
    assert await chats.load("a:b", "c") is not None


@pytest.mark.req("T-006", "T-007", "T-010")
async def test_results_clears_and_ends_are_stored(manager: SessionManager) -> None:
    chats = manager.store
    session = await manager.get_or_create("ann", "c1", "/folder")
    an_hour_ago = now() - timedelta(hours=1)

    def age(_db: Db, chat: ChatSession) -> None:
        chat.last_used = an_hour_ago

    await manager.change(session, age)
    assert await manager.update_from_result(session, "conversation-1", 0.25)
    known = manager.get("ann", "c1")
    assert known is not None
    assert await manager.update_from_result(known, "conversation-1", 0.25)
    assert not await manager.update_from_result(known, None, 9.0, log=lambda _db: False)
    stored = await chats.load("ann", "c1")
    assert stored is not None
    assert (stored.message_count, stored.total_cost) == (2, 0.5)
    assert stored.claude_session_id == "conversation-1"
    assert stored.last_used > an_hour_ago

    def clear(_db: Db, chat: ChatSession) -> None:
        chat.claude_session_id = None

    await manager.change(stored, clear)
    # The answer to what was said before the clear comes after it.
    assert await manager.update_from_result(stored, "conversation-1", 0.25)
    cleared = await chats.load("ann", "c1")
    assert cleared is not None
    assert (cleared.claude_session_id, cleared.message_count) == (None, 3)
    ended = await manager.deactivate("ann", "c1")
    assert ended is not None
    assert not ended.is_active
    assert manager.get("ann", "c1") is None
    assert await chats.load("ann", "c1") is None
    assert await manager.deactivate("ann", "c1") is None
    fresh = await manager.get_or_create("ann", "c1", "/folder")
    assert fresh.session_id != session.session_id


async def test_a_refused_change_leaves_the_session_as_it_was(manager: SessionManager) -> None:
    session = await manager.get_or_create("ann", "c1", "/folder")

    def refuse(_db: Db, chat: ChatSession) -> None:
        chat.mode = "auto"
        raise ValidationFailed("no")

    with pytest.raises(ValidationFailed):
        await manager.change(session, refuse)
    assert manager.get("ann", "c1") == await manager.store.load("ann", "c1") == session


async def test_what_another_process_changed_or_ended_is_seen(either_store: OpenStore) -> None:
    here, there = (
        SessionManager(DatabaseSessionStore(either_store, "one"), either_store) for _ in range(2)
    )
    session = await here.get_or_create("ann", "c1", "/folder")
    other = await there.get_or_create("ann", "c1", "/folder")
    assert await there.update_from_result(other, "conversation", 0.5)
    assert await here.update_from_result(session, None, 0.5)
    assert await there.read(other, lambda _db, chat: chat.total_cost) == 1.0
    assert await there.deactivate("ann", "c1") is not None
    with pytest.raises(ChatEnded):
        await here.change(session, lambda _db, _chat: None)
    assert here.get("ann", "c1") is None


@pytest.mark.req("T-005", "T-008")
async def test_expiry_forgets_in_memory_only(manager: SessionManager) -> None:
    used_long_ago = now() - timedelta(hours=30)
    await manager.store.save(replace(ChatSession("s1", "ann", "c1", "/"), last_used=used_long_ago))
    assert await manager.find("ann", "c1") is not None
    await manager.get_or_create("bob", "c1", "/folder")
    assert manager.get("ann", "c1") is None
    assert manager.cleanup_expired(31) == 0
    assert manager.cleanup_expired(24) == 1
    assert manager.cleanup_expired(24) == 0
    assert await manager.store.load("ann", "c1") is not None
    assert manager.get("bob", "c1") is not None


@pytest.mark.req("T-014", "T-015", "T-016")
def test_the_log_is_append_only_and_ordered(either_store: OpenStore) -> None:
    place = Place("one", "ann", "c1")

    def line(number: int, role: str) -> LoggedMessage:
        content = f"line {number}"
        return LoggedMessage(f"id-{number}", "ann", "c1", role, content, 0.1, 20, "s1", 1_000)

    def fill(db: Db) -> list[bool]:
        roles = ("user", "assistant", "user")
        return [
            chat_log.save_message(db, place, line(at, role)) for at, role in enumerate(roles)
        ] + [chat_log.save_message(db, place, line(0, "user"))]

    assert either_store.write(fill) == [True, True, True, False]
    with pytest.raises(ValidationFailed):
        either_store.write(lambda db: chat_log.save_message(db, place, line(9, "robot")))
    lines = either_store.read(lambda db: chat_log.get_messages(db, place))
    assert [one.content for one in lines] == ["line 0", "line 1", "line 2"]
    assert (lines[1].role, lines[1].cost, lines[1].duration_ms) == ("assistant", 0.1, 20)
    page = either_store.read(lambda db: chat_log.get_messages(db, place, 1, 1))
    assert [one.content for one in page] == ["line 1"]
    other = Place("two", "ann", "c1")
    assert either_store.read(lambda db: chat_log.get_messages(db, other)) == []


def test_lines_wait_for_their_turn_in_their_session(either_store: OpenStore) -> None:
    library = SampleLibrary(either_store)
    place = Place(library.operator_id, "ann", "c1")
    busy, first, second = (library.session(state=state) for state in ("paused", "idle", "idle"))

    def fill(db: Db) -> None:
        for number, session_id in enumerate((busy, first, first, second, second)):
            name = f"{number} for {session_id}"
            line = LoggedMessage(
                name, "ann", "c1", "user", name, None, None, session_id, number, "queued"
            )
            chat_log.save_message(db, place, line)

    def to_send(limit: int) -> list[str]:
        lines = either_store.read(lambda db: chat_log.to_send(db, limit=limit))
        return [line.id[0] for line in lines]

    either_store.write(fill)
    assert to_send(2) == ["1", "3"]
    assert either_store.write(lambda db: delivery.claim(db, f"2 for {first}")) is None
    assert either_store.write(lambda db: delivery.claim(db, f"0 for {busy}")) is None
    claimed = either_store.write(lambda db: delivery.claim(db, f"1 for {first}"))
    assert claimed is not None
    assert claimed.id == first
    assert either_store.write(lambda db: delivery.claim(db, f"1 for {first}")) is None
    assert to_send(9) == ["3"]


@pytest.mark.req("T-010")
async def test_a_repeated_clear_leaves_the_session_that_began_after_it(
    sqlite_store: OpenStore,
) -> None:
    library = SampleLibrary(sqlite_store)
    place = Place(library.operator_id, "ann", "c1")
    manager = SessionManager(DatabaseSessionStore(sqlite_store, place.operator_id), sqlite_store)
    said = Incoming("clear-1", "/clear", may_wait=False)

    def begin(db: Db, chat: ChatSession) -> None:
        answering(db, sqlite_store.home, place, chat, Wanted())

    chat = await manager.get_or_create("ann", "c1", "", begin)
    cleared = await manager.change(chat, lambda db, chat: delivery.clear(db, place, chat, said))
    assert cleared.claude_session_id is None
    await manager.change(chat, begin)
    # The API was killed before it answered, and the connector asks again with the same key.
    again = await manager.change(chat, lambda db, chat: delivery.clear(db, place, chat, said))
    assert again.claude_session_id is not None
    assert again.claude_session_id != chat.session_id


@pytest.mark.req("T-018")
@pytest.mark.parametrize("name", ["paper", "absent.module:Store", "holdfast.storage.chats:Absent"])
def test_a_backend_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no such backend"):
        backend(name)
