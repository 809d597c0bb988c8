"""What every store promises, SQLite and Postgres alike."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, inspect, update
from sqlalchemy.exc import DBAPIError
from ulid import ULID

from holdfast.domain.clock import now_ms
from holdfast.domain.events import CommandRefused
from holdfast.storage.database import blobs
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.database.tables_history import EventRow, Frame
from holdfast.storage.log import events, frames
from holdfast.storage.moves import checkpoints, compactions
from holdfast.storage.sessions import messages, runs, sessions
from tests.support.blob_files import blob_file
from tests.support.sample_library import SampleLibrary
from tests.support.stored_rows import blob_row, frames_of
from tests.support.workflow_double import WorkflowDouble

# The tables of the core seed; `metadata` and `superseded` of a message are made when it is read.
SEED = {
    "sessions": "id project_id created_by state created_at updated_at ended_at forked_from"
    " model_override bound_issue",
    "messages": "id session_id run_id role content created_at meta",
    "runs": "id session_id state created_at completed_at duration_ms tokens_in tokens_out error",
    "subagent_invocations": "id run_id session_id subagent_name cage_id state spawned_at exited_at"
    " exit_code",
    "tool_calls": "id run_id session_id caller tool_name input output state created_at"
    " completed_at",
    "checkpoints": "id session_id run_id created_at created_by reason snapshot resumed_at"
    " rolled_back superseded_by",
    "run_pty_transcripts": "id run_id pty_id transcript line_count created_at",
    "prompt_edits": "id checkpoint_id session_id target old_hash new_hash new_content edited_at",
}
MORE = (
    "projects issues todos inbox frames events supersessions blobs heads derivations aliases"
    " operators tokens leases idempotency_keys"
)
INDEXED = {
    "messages": ("session_id", "created_at"),
    "runs": ("session_id", "created_at"),
    "subagent_invocations": ("run_id",),
    "tool_calls": ("run_id",),
    "checkpoints": ("session_id", "created_at"),
}


@pytest.mark.req(
    "K-101", "K-102", "K-103", "K-104", "K-105", "K-106", "K-107", "K-108", "K-109", "K-110"
)
def test_every_table_has_the_columns_and_indexes_of_the_seed(either_store: OpenStore) -> None:
    look = inspect(either_store.reader)
    assert set(SEED) | set(MORE.split()) <= set(look.get_table_names())
    for name, columns in SEED.items():
        types = {column["name"]: str(column["type"]) for column in look.get_columns(name)}
        assert set(columns.split()) <= set(types), name
        for column, kind in types.items():
            if column == "id" or column.endswith("_id"):
                assert kind.startswith(("VARCHAR", "TEXT")), f"{name}.{column}"
            if column.endswith("_at"):
                assert kind == "BIGINT", f"{name}.{column}"
    for name, columns_in_order in INDEXED.items():
        known = [tuple(index["column_names"]) for index in look.get_indexes(name)]
        assert columns_in_order in known, name


@pytest.mark.req("K-111", "K-110", "K-097")
def test_a_hundred_messages_come_back_in_order(library: SampleLibrary) -> None:
    session = library.session()
    for number in range(100):
        library.say(session, f"message {number}")
    found = library.store.read(lambda db: messages.page(db, session, limit=200))
    assert [one.content for one, _ in found] == [f"message {number}" for number in range(100)]
    ids = [one.id for one, _ in found]
    assert ids == sorted(ids)
    assert all(str(ULID.from_str(one)) == one for one in ids)
    assert [one.seq for one, _ in found] == list(range(1, 101))
    paged = library.store.read(lambda db: messages.page(db, session, after_seq=40, limit=20))
    assert [one.seq for one, _ in paged] == list(range(41, 61))


@pytest.mark.req("K-097")
def test_the_same_message_twice_is_stored_once(library: SampleLibrary) -> None:
    session = library.session()
    first = library.say(session, "once", id="01J0000000000000000000000A")
    again = library.say(session, "once", id="01J0000000000000000000000A")
    assert (first.seq, again.seq) == (1, 1)
    assert library.store.read(lambda db: sessions.get(db, session)).message_count == 1


def _log(library: SampleLibrary) -> str:
    session = library.session()
    for number in range(5):
        refused = CommandRefused(session_id=session, command="end", reason=f"no {number}")
        library.store.write(lambda db, one=refused: events.append(db, session, one))  # type: ignore[misc]
    return session


def _broken(library: SampleLibrary, session: str) -> int | None:
    return library.store.read(lambda db: events.broken_link(db, session))


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"at": 1}, {"data": {"reason": "yes"}}, {"run_id": "x"}, {"id": "x"}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.req("F-008")
def test_any_change_of_an_event_shows(library: SampleLibrary, change: dict[str, Any]) -> None:
    session = _log(library)
    assert _broken(library, session) is None
    place = table(EventRow)
    mine = (place.c.session_id == session) & (place.c.seq == 3)
    library.store.write(
        lambda db: db.connection().execute(update(place).where(mine).values(change))
    )
    assert _broken(library, session) == 3


@pytest.mark.parametrize("seq", [2, 6])
@pytest.mark.req("F-008")
def test_a_removed_event_shows(library: SampleLibrary, seq: int) -> None:
    session = _log(library)
    place = table(EventRow)
    mine = (place.c.session_id == session) & (place.c.seq == seq)
    library.store.write(lambda db: db.connection().execute(delete(place).where(mine)))
    assert _broken(library, session) is not None


@pytest.mark.req("K-091")
def test_frames_go_by_age_and_by_size_and_the_floor_says_up_to_where(
    library: SampleLibrary,
) -> None:
    session = library.session()
    payload = {"text": "x" * 100}

    def add(db: Db) -> None:
        frames.append(db, session, *[("delta", payload)] * 10)

    library.store.write(add)
    place = table(Frame)
    old = update(place).where(place.c.session_id == session, place.c.seq <= 3)
    library.store.write(
        lambda db: db.connection().execute(old.values(created_at=now_ms() - 11 * 60_000))
    )
    assert library.store.read(frames.sessions_to_prune) == [session]
    assert library.store.write(lambda db: frames.prune(db, session)) == 3
    assert library.store.write(lambda db: frames.prune(db, session, keep_bytes=400)) > 0
    left = library.store.read(lambda db: frames_of(db, session))
    assert sum(one.size for one in left) <= 400
    floor = library.store.read(lambda db: sessions.get(db, session)).frame_floor
    assert [one.seq for one in left] == list(range(floor + 1, 11))


@pytest.mark.req("K-097", "K-042")
def test_a_run_ends_once_whoever_ends_it(either_store: OpenStore) -> None:
    workflow = WorkflowDouble(either_store)
    session = workflow.session()
    run = workflow.begin(session)

    def finish(state: str) -> bool:
        return either_store.write(
            lambda db: runs.finish(db, run, trigger=f"run.{state}", state=state)
        )

    assert [finish("cancelled"), finish("done")] == [True, False]
    assert either_store.read(lambda db: runs.get(db, run)).state == "cancelled"
    assert either_store.read(lambda db: sessions.get(db, session)).state == "idle"


@pytest.mark.req("F-025", "F-019")
def test_a_blob_is_whole_on_disk_before_its_row_is_and_damage_shows(
    either_store: OpenStore,
) -> None:
    folder = either_store.blobs
    for data in (b"small", b"large " * 1000):
        blob = folder.put(data, "text/plain")
        assert folder.read(blob.id) == data
        assert either_store.read(lambda db, one=blob.id: blob_row(db, one)) is None  # type: ignore[misc]
        assert either_store.write(lambda db, one=blob: blobs.commit(db, one)) == blob.id  # type: ignore[misc]
        assert folder.put(data).id == blob.id
        row = either_store.read(lambda db, one=blob.id: blob_row(db, one))  # type: ignore[misc]
        assert row is not None
        assert (row.sha256, row.size) == (blob.sha256, len(data))
        path = blob_file(either_store, blob.id)
        assert path.stat().st_mode & 0o077 == 0
        path.write_bytes(b"something else")
        assert folder.damaged(blob.id)
        with pytest.raises(BlobMissing, match="damaged"):
            folder.read(blob.id)
        path.unlink()
        with pytest.raises(BlobMissing, match="gone"):
            folder.read(blob.id)


@pytest.mark.req("F-025")
def test_a_transaction_that_fails_leaves_an_orphan_and_no_row(either_store: OpenStore) -> None:
    blob = either_store.blobs.put(b"never committed")

    def fail(db: Db) -> None:
        blobs.commit(db, blob)
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        either_store.write(fail)
    assert either_store.read(lambda db: blob_row(db, blob.id)) is None
    assert either_store.blobs.exists(blob.id)


@pytest.mark.req("K-100")
def test_sqlite_writes_ahead_and_synchronises_fully(tmp_path: Path) -> None:
    store = open_store(None, tmp_path)
    with store.writer.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    store.close()
    assert (tmp_path / "holdfast.sqlite").stat().st_mode & 0o077 == 0


def _write_many(home: Path, session: str, count: int, done: Any) -> None:
    store = open_store(None, home, synchronous="NORMAL")
    longest = 0.0
    for number in range(count):
        began = time.monotonic()
        words = f"{multiprocessing.current_process().name} {number}"
        store.write(
            lambda db, text=words: messages.append(db, session, role="operator", content=text)  # type: ignore[misc]
        )
        longest = max(longest, time.monotonic() - began)
    store.close()
    done.put(longest)


@pytest.mark.req("K-124")
@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_four_processes_write_at_once_and_nothing_is_lost(
    sqlite_store: OpenStore, count: int
) -> None:
    session = SampleLibrary(sqlite_store).session()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["holdfast.storage.database.opening", "holdfast.storage.sessions.messages", __name__]
    )
    done: Any = context.Queue()
    home = sqlite_store.home
    writers = [
        context.Process(target=_write_many, args=(home, session, count, done)) for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    longest = [done.get(timeout=300) for _ in writers]
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4, "a write was refused"
    place = table(Message)
    row = sqlite_store.read(lambda db: sessions.get(db, session))
    seqs = sqlite_store.read(
        lambda db: [one.seq for one in db.connection().execute(place.select()).all()]
    )
    assert sorted(seqs) == list(range(1, 4 * count + 1))
    assert row.message_count == 4 * count
    assert max(longest) < 20.0, "within the budget of a write"
    assert sqlite_store.read(lambda db: events.broken_link(db, session)) is None


def test_sessions_are_made_once(library: SampleLibrary) -> None:
    session = library.session(id="01J0000000000000000000000B")
    library.session(id=session)
    found = library.store.read(lambda db: events.after(db, session, 0, limit=10))
    assert [one.kind for one in found] == ["session.created"]
    assert library.store.read(lambda db: db.get(SessionRow, session)) is not None


def test_an_error_of_the_database_does_not_tell_what_was_said(library: SampleLibrary) -> None:
    message = library.say(library.session(), "wordprivate")
    again = message.model_dump(exclude={"number"})
    with pytest.raises(DBAPIError) as raised:
        library.store.write(lambda db: db.connection().execute(table(Message).insert(), [again]))
    assert "INSERT INTO messages" in str(raised.value)
    assert "wordprivate" not in str(raised.value)


def test_runs_checkpoints_and_compactions_are_paged_by_time_and_id(
    either_store: OpenStore,
) -> None:
    workflow = WorkflowDouble(either_store)
    session = workflow.session()
    for _ in range(3):
        said = workflow.say(session, "early")
        run = workflow.begin(session)
        workflow.resume(session, workflow.pause(session).id)
        workflow.finish(run)
        workflow.compact(session, [said.id])
    pages: list[Callable[..., Sequence[Any]]] = [
        runs.of_session,
        checkpoints.of_session,
        compactions.page,
    ]
    for page in pages:

        def found(page: Any = page, **options: Any) -> list[Any]:
            return list(either_store.read(lambda db: page(db, session, limit=9, **options)))

        newest, middle, oldest = found()
        assert found(before=(newest.created_at, newest.id)) == [middle, oldest]
        assert found(before=(oldest.created_at, oldest.id)) == []
        assert middle in found(before=(middle.created_at, "~")), "of the same time, an older id"
