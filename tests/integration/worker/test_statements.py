"""What a run asks of the database; it must not creep up."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from sqlalchemy import Engine, event

from holdfast.domain.events import SessionEnded
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.log import events, frames
from holdfast.storage.moves import heads
from holdfast.storage.sessions import messages, runs, sessions
from tests.support.local_worker import LocalWorker, script
from tests.support.sample_library import SampleLibrary
from tests.support.stored_rows import frames_of

# 219 before 0.2.0. A piece of an answer that comes late is a transaction more: five statements.
STATEMENTS_MAX = 170
TRANSACTIONS_MAX = 12
CALL = {"call": "list_files", "arguments": {}}


class Statements:
    """Those of the store's own threads, but for the signs of life of hosts."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> Statements:
        event.listen(Engine, "before_cursor_execute", self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        event.remove(Engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        of_store = threading.current_thread().name.startswith("store-")
        if of_store and " hosts " not in statement:
            self.seen.append(statement)


async def test_a_run_of_three_steps_asks_the_database_this_often(worker: LocalWorker) -> None:
    session_id = worker.session()
    await worker.run(session_id, script({"say": "Hello."}))
    with Statements() as counted:
        await worker.run(session_id, script(CALL, CALL, {"say": "Done."}))
        await worker.state(session_id, "idle")
    most = Counter(counted.seen).most_common(8)
    assert len(counted.seen) <= STATEMENTS_MAX, most
    assert counted.seen.count("BEGIN IMMEDIATE") <= TRANSACTIONS_MAX
    assert worker.store.read(lambda db: events.broken_link(db, session_id)) is None


def ended(session_id: str) -> SessionEnded:
    return SessionEnded(session_id=session_id, run_count=0, duration=0, user_id="u", reason="done")


def test_what_a_transaction_says_of_a_session_is_written_once(library: SampleLibrary) -> None:
    first, second = library.session(), library.session()

    def say(db: Db) -> None:
        for number in range(3):
            events.append(db, first, ended(first), run_id=f"run {number}")
            frames.append(db, first, ("delta", {"number": number}))
        events.append(db, second, ended(second))

    library.store.write(lambda db: None)
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    event.listen(library.store.writer, "before_cursor_execute", note)
    library.store.write(say)
    event.remove(library.store.writer, "before_cursor_execute", note)
    assert sum(one.startswith("INSERT INTO events") for one in seen) == 2
    assert sum(one.startswith("INSERT INTO frames") for one in seen) == 1
    kept = library.store.read(lambda db: events.after(db, first, 0, limit=9))
    assert [(one.seq, one.run_id) for one in kept[-3:]] == [
        (kept[-1].seq - 2, "run 0"),
        (kept[-1].seq - 1, "run 1"),
        (kept[-1].seq, "run 2"),
    ]
    streamed = library.store.read(lambda db: frames_of(db, first))
    assert [(one.seq, one.payload["number"]) for one in streamed] == [(1, 0), (2, 1), (3, 2)]
    for session_id in (first, second):
        link = library.store.read(lambda db, key=session_id: events.broken_link(db, key))  # type: ignore[misc]
        assert link is None


def test_what_is_said_in_a_transaction_that_fails_is_not_kept(library: SampleLibrary) -> None:
    session_id = library.session()
    before = library.store.read(lambda db: sessions.get(db, session_id))

    def say(db: Db) -> None:
        events.append(db, session_id, ended(session_id))
        raise KeyError(session_id)

    with pytest.raises(KeyError):
        library.store.write(say)
    library.store.write(lambda db: None)
    after = library.store.read(lambda db: sessions.get(db, session_id))
    assert (after.event_seq, after.event_hash) == (before.event_seq, before.event_hash)


def test_a_head_counts_the_events_of_its_own_transaction(library: SampleLibrary) -> None:
    session_id, run_id = library.session(), new_id()
    blobs = library.store.blobs  # type: ignore[attr-defined]

    def end(db: Db) -> str:
        runs.create(
            db,
            run_id=run_id,
            session_id=session_id,
            message_id=None,
            user_id="u",
            state="running",
            preview="",
        )
        events.append(db, session_id, ended(session_id))
        return heads.create(db, blobs, session_id, run_id=run_id)

    head_id = library.store.write(end)
    counted = heads.root(blobs, head_id)["counters"]["events"]
    stored = library.store.read(lambda db: sessions.get(db, session_id)).event_seq
    assert counted == stored - 1  # the event of the head itself comes after it


def test_an_answer_whose_message_is_there_already_changes_nothing(library: SampleLibrary) -> None:
    session_id, message_id = library.session(), new_id()

    def say(db: Db) -> None:
        messages.append(
            db, session_id, id=message_id, known_new=True, role="primary", content="words"
        )

    library.store.write(say)
    before = library.store.read(lambda db: sessions.get(db, session_id))
    with pytest.raises(messages.MessageThere):
        library.store.write(say)
    after = library.store.read(lambda db: sessions.get(db, session_id))
    assert (after.message_seq, after.message_count) == (before.message_seq, before.message_count)
