"""Export, import, purge, clear and prune."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import BadRequest, Conflict, NotFound, ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Call, Run, SessionRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log import events
from holdfast.storage.moves import forks, heads
from holdfast.storage.sessions import messages, ptys, resolver, runs, sessions
from holdfast.storage.transfer import archive
from holdfast.storage.transfer.export_document import document, documents
from holdfast.storage.transfer.export_pages import markdown, page
from holdfast.storage.transfer.redaction import MARK, redact
from holdfast.storage.upkeep import removal
from tests.support.blob_files import blob_ids
from tests.support.imports import import_document
from tests.support.sample_library import SampleLibrary


@pytest.fixture
def filled(library: SampleLibrary) -> str:
    """A session with a conversation, a run, a call with blobs, and a head."""
    session = library.session(title="Mending", source="cli")
    library.say(session, "Please <b>fix</b> it. # not a heading\n# nor this; token=abcdef123456")
    library.say(
        session,
        "On it",
        "primary",
        tool_calls=[{"id": "c1", "name": "shell", "arguments": {"command": "make"}}],
    )
    library.say(session, "``` output", "tool", tool_name="shell", tool_call_id="c1")
    add_run(library, session)
    return session


def add_run(library: SampleLibrary, session: str) -> str:
    """A finished run with a head; the head's id."""
    store = library.store
    assert isinstance(store, OpenStore)
    run_id, at = new_id(), now_ms()
    request = store.blobs.put_json({"kind": "root-agent", "run": run_id})

    def work(db: Db) -> str:
        run = Run(id=run_id, session_id=session, state="done", created_at=at)
        insert_once(db, Run, run.model_dump())
        call = Call(id=new_id(), session_id=session, run_id=run_id, status="done", created_at=at)
        call.request_ref = blobs.commit(db, request)
        insert_once(db, Call, call.model_dump())
        return heads.create(db, store.blobs, session, run_id=run_id)

    return store.write(work)


def export(library: SampleLibrary, session: str, *, redacted: bool = False) -> dict[str, Any]:
    """The document, as it comes back from a file."""
    store = library.store
    assert isinstance(store, OpenStore)
    value = store.read(
        lambda db: document(db, store.blobs, sessions.get(db, session), redacted=redacted)
    )
    loaded: dict[str, Any] = json.loads(json.dumps(value))
    return loaded


def rows(store: OpenStore, session: str) -> dict[str, Any]:
    """The rows without the numbers that the database gave."""
    found = store.read(lambda db: archive.rows_of(db, session))
    for name in ("messages", "supersessions"):
        for row in found[name]:
            del row["number"]
    return found


@pytest.mark.req("H-039", "F-023")
def test_an_export_comes_back_bit_for_bit(
    library: SampleLibrary, filled: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from holdfast.storage.database.opening import open_store

    exported = export(library, filled)
    other = open_store(None, tmp_path_factory.mktemp("other") / "home", synchronous="OFF")
    answer = import_document(other, "somebody", exported)
    assert (answer["session_id"], answer["imported"]) == (filled, True)
    assert isinstance(library.store, OpenStore)
    assert rows(other, filled) == rows(library.store, filled)
    assert other.read(lambda db: events.broken_link(db, filled)) is None
    copied = other.read(lambda db: sessions.get(db, filled))
    original = library.store.read(lambda db: sessions.get(db, filled))
    assert copied.model_dump(exclude={"created_by"}) == original.model_dump(exclude={"created_by"})
    assert copied.current_head is not None
    assert heads.materialize(other.blobs, copied.current_head) == heads.materialize(
        library.store.blobs, copied.current_head
    )
    again = import_document(other, "somebody", exported)
    assert again["imported"] is False
    assert SampleLibrary(other, "somebody").found("fix")
    other.close()


def test_what_an_import_refuses(library: SampleLibrary, filled: str) -> None:
    store = library.store
    assert isinstance(store, OpenStore)
    exported = export(library, filled)
    with pytest.raises(Conflict):
        import_document(store, "another", exported)
    store.write(lambda db: change(db, SessionRow, filled, event_hash="changed"))
    with pytest.raises(Conflict):
        import_document(store, library.operator_id, exported)
    wrongs: tuple[Any, ...] = ([], {}, {"format": "holdfast.session", "version": 99})
    for wrong in wrongs:
        with pytest.raises(BadRequest):
            import_document(store, library.operator_id, wrong)
    with pytest.raises(BadRequest):
        import_document(store, library.operator_id, export(library, filled, redacted=True))


def test_a_changed_export_is_noticed(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    library.say(session, "words")
    add_run(library, session)
    exported = export(library, session)
    removal.purge(sqlite_store, session)

    def refused(harm: str) -> None:
        changed = copy.deepcopy(exported)
        parts = changed["archive"]
        if harm == "event":
            parts["events"][0]["data"]["user_id"] = "mallory"
        elif harm == "blob":
            name = next(iter(parts["blobs"]))
            parts["blobs"][name] = "AAAA"
        elif harm == "field":
            parts["messages"][0]["surprise"] = 1
        elif harm == "owner":
            parts["messages"][0]["session_id"] = "another"
        elif harm == "project file":
            parts["project_file"] = {"version": 1, "project": "other"}
        with pytest.raises(ValidationFailed):
            import_document(sqlite_store, library.operator_id, changed)

    for harm in ("event", "blob", "field", "owner", "project file"):
        refused(harm)
    assert import_document(sqlite_store, library.operator_id, exported)["imported"]


def test_a_session_exported_at_work_comes_back_at_rest(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session(state="running")
    run = Run(id=new_id(), session_id=session, state="running", created_at=now_ms())
    sqlite_store.write(lambda db: insert_once(db, Run, run.model_dump()))
    exported = export(library, session)
    sqlite_store.write(lambda db: change(db, SessionRow, session, state="idle"))
    removal.purge(sqlite_store, session)
    import_document(sqlite_store, library.operator_id, exported)
    assert sqlite_store.read(lambda db: sessions.get(db, session)).state == "idle"
    found = sqlite_store.read(lambda db: runs.find(db, run.id))
    assert found is not None
    assert found.state == "failed"


def test_a_fork_brings_along_what_it_reads(
    sqlite_store: OpenStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from holdfast.storage.database.opening import open_store

    library = SampleLibrary(sqlite_store)
    source, fork = _fork(library)
    exported = export(library, fork)
    whole = export(library, source)
    other = open_store(None, tmp_path_factory.mktemp("other") / "home", synchronous="OFF")
    import_document(other, "somebody", exported)
    seen = other.read(lambda db: messages.page(db, fork, limit=50))
    assert [message.content for message, _ in seen] == ["before", "own"]
    with pytest.raises(NotFound):
        other.read(lambda db: resolver.resolve(db, "somebody", source))
    assert import_document(other, "somebody", whole)["imported"]
    assert other.read(lambda db: resolver.resolve(db, "somebody", source)).session.id == source
    other.close()


@pytest.mark.req("H-042")
def test_a_purge_removes_rows_words_and_blobs_but_not_what_forks_read(
    library: SampleLibrary,
) -> None:
    store = library.store
    assert isinstance(store, OpenStore)
    before = blob_ids(store)
    source, fork = _fork(library)
    assert len(library.found("before")) == 1
    removal.purge(store, source)
    assert library.found("before OR after") == set()
    assert store.read(lambda db: sessions.get(db, source)).purged
    seen = store.read(lambda db: messages.page(db, fork, limit=50))
    assert [message.content for message, _ in seen] == ["before", "own"]
    assert store.read(lambda db: archive.rows_of(db, source))["events"] == []
    removal.purge(store, fork)
    for session in (source, fork):
        assert store.read(lambda db, gone=session: sessions.find(db, gone)) is None  # type: ignore[misc]
        left = store.read(lambda db, gone=session: archive.rows_of(db, gone))  # type: ignore[misc]
        assert not any(left.values())
    assert blob_ids(store) == before


def test_what_is_said_after_a_purge_is_found(library: SampleLibrary) -> None:
    """The numbers that search files texts under are never given twice."""
    store = library.store
    assert isinstance(store, OpenStore)
    session = library.session()
    library.say(session, "first words")
    assert len(library.found("words")) == 1
    removal.purge(store, session)
    said = library.say(library.session(), "other words")
    assert library.found("words") == {said.id}


def test_a_session_at_work_is_neither_purged_nor_cleared(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    for state in ("running", "queued", "paused"):
        session = library.session(state=state)
        with pytest.raises(Conflict):
            removal.purge(sqlite_store, session)
        with pytest.raises(Conflict):
            removal.clear_messages(sqlite_store, session, "me")
    watched = library.session()
    sqlite_store.write(lambda db: ptys.opened(db, Pty(id=new_id(), session_id=watched)))
    with pytest.raises(Conflict, match="terminal"):
        removal.purge(sqlite_store, watched)


@pytest.mark.req("H-041")
def test_clearing_keeps_the_session(library: SampleLibrary, filled: str) -> None:
    store = library.store
    assert isinstance(store, OpenStore)
    assert removal.clear_messages(store, filled, "me") == 3
    session = store.read(lambda db: sessions.get(db, filled))
    assert (session.title, session.message_count, session.current_head) == ("Mending", 0, None)
    assert store.read(lambda db: messages.page(db, filled, limit=10)) == []
    assert library.found("fix") == set()
    assert store.read(lambda db: events.broken_link(db, filled)) is None
    library.say(filled, "fresh start")
    assert len(library.found("fresh")) == 1


@pytest.mark.req("H-040")
def test_pruning_takes_only_old_ended_sessions(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    old = now_ms() - 100 * removal.DAY_MS
    gone = library.session(state="ended", ended_at=old, source="cli")
    unused = library.session(state="idle", source="cli")
    long_ago = {"created_at": old, "updated_at": old, "last_active": old}
    sqlite_store.write(lambda db: change(db, SessionRow, unused, **long_ago))
    kept = [
        unused,
        library.session(state="ended", ended_at=now_ms(), source="cli"),
        library.session(state="ended", ended_at=old, source="cli", pinned=True),
        library.session(state="ended", ended_at=old, source="web"),
    ]

    def prune(*, dry_run: bool) -> list[str]:
        answer = removal.prune(
            sqlite_store, library.operator_id, older_than_days=90, source="cli", dry_run=dry_run
        )
        assert answer["count"] == len(answer["session_ids"])
        ids: list[str] = answer["session_ids"]
        return ids

    assert prune(dry_run=True) == [gone]
    assert prune(dry_run=False) == [gone]
    assert prune(dry_run=False) == []
    for session in kept:
        assert sqlite_store.read(lambda db, key=session: sessions.find(db, key)) is not None  # type: ignore[misc]


@pytest.mark.req("H-039")
def test_people_can_read_an_export(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session(title="<script>alert(1)</script>")
    library.say(session, "# heading\n<img src=x onerror=alert(1)>")
    library.say(session, "```\nfence", "tool", tool_name="shell")
    exported = export(library, session)
    shown = page(exported)
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
    assert "http://" not in shown
    assert "https://" not in shown
    written = markdown(exported)
    assert "\\# heading" in written
    assert "````\n```\nfence\n````" in written
    assert written.startswith("# <script>alert(1)</script>")


@pytest.mark.req("H-039")
def test_all_sessions_are_exported_with_progress(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    ids = [library.session(source=source) for source in ("cli", "cli", "web")]
    told = list(documents(sqlite_store, library.operator_id, source="cli"))
    assert [item["session"]["id"] for item in told] == ids[:2]
    assert [item["progress"] for item in told] == [
        {"done": 1, "total": 2},
        {"done": 2, "total": 2},
    ]


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrstuvwxyz012345",
        "AKIAABCDEFGHIJKLMNOP",
        "Authorization: Bearer abcdefghijkl.mnopqrstuvwxyz",
        'password = "hunter22"',
        "API_KEY=verysecretvalue",
        "postgres://me:hunter22@host/db",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_taken_out(secret: str) -> None:
    hidden = redact(f"before {secret} after")
    assert MARK in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    for part in ("hunter22", "verysecret", "abcdefghijkl", "ABCDEFGHIJ", "MIIE"):
        assert part not in hidden


def _fork(library: SampleLibrary) -> tuple[str, str]:
    """A source with one message before the fork and one after it."""
    store = library.store
    assert isinstance(store, OpenStore)
    source = library.session(title="source")
    library.say(source, "before")
    add_run(library, source)
    fork = new_id()
    store.write(
        lambda db: forks.fork(
            db,
            store.blobs,
            source_session=source,
            operator=library.operator_id,
            new_session_id=fork,
        )
    )
    library.say(source, "after")
    add_run(library, source)
    library.say(fork, "own")
    return source, fork
