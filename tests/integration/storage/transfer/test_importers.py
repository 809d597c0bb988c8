"""The importers of the table: each recognises its own sources, and all store in one way."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.domain.errors import BadRequest, NotFound, PayloadTooLarge
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import messages, sessions
from holdfast.storage.transfer.export_document import document
from holdfast.storage.transfer.importers import holdfast_export, table
from holdfast.storage.transfer.importers.foreign_session import ForeignMessage, ForeignSession
from holdfast.storage.transfer.importers.importer import HEAD_BYTES, Source
from holdfast.storage.transfer.importers.table import IMPORTERS, import_from, recognise
from holdfast.storage.upkeep import removal
from tests.support.hermes_sample import write_state_db
from tests.support.sample_library import OPERATOR, SampleLibrary


def exports(store: OpenStore, folder: Path) -> list[Source]:
    """What `holdfast export` writes: one document, one for people, lines; of a purged session."""
    library = SampleLibrary(store)
    session_id = library.session(title="Mine")
    library.say(session_id, "some words")
    value = store.read(lambda db: document(db, store.blobs, sessions.get(db, session_id)))
    removal.purge(store, session_id)
    line = json.dumps(value)
    texts = [line, json.dumps(value, indent=2), f"{line}\n{line}\n"]
    for number, text in enumerate(texts):
        (folder / f"{number}.json").write_text(text)
    files = [Source(folder / f"{number}.json") for number in range(len(texts))]
    return [*files, *(Source(text.encode()) for text in texts)]


def state_dbs(_: OpenStore, folder: Path) -> list[Source]:
    """A `state.db` at rest, and one that Hermes made a moment ago and still has open."""
    write_state_db(folder / "rest.db").close()
    running = write_state_db(folder / "running.db")
    for suffix in ("", "-wal"):
        shutil.copy(folder / f"running.db{suffix}", folder / f"young.db{suffix}")
    running.close()
    # Nothing but a header: the tables are in the write-ahead log.
    assert (folder / "young.db").stat().st_size == 4096
    return [Source(folder / "rest.db"), Source(folder / "young.db")]


# An importer without a sample fails the tests.
SAMPLES: dict[str, Callable[[OpenStore, Path], list[Source]]] = {
    "holdfast": exports,
    "hermes": state_dbs,
}


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_importer_recognises_its_own_sample_and_no_others(
    sqlite_store: OpenStore, tmp_path: Path, name: str
) -> None:
    for source in SAMPLES[name](sqlite_store, tmp_path):
        assert recognise(source) == name
        assert [one for one, importer in IMPORTERS.items() if importer.sniff(source)] == [name]


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_importer_stores_its_own_sample_once(
    sqlite_store: OpenStore, tmp_path: Path, name: str
) -> None:
    first, *others = SAMPLES[name](sqlite_store, tmp_path)
    done = import_from(sqlite_store, OPERATOR, name, first)
    assert [one["imported"] for one in done] == [True] * len(done)
    assert done
    for source in (first, *others):
        again = import_from(sqlite_store, OPERATOR, name, source)
        assert {one["session_id"] for one in again} == {one["session_id"] for one in done}
        assert not any(one["imported"] for one in again)


def test_what_no_importer_knows_is_recognised_by_none(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    other = tmp_path / "opencode.db"
    connection = sqlite3.connect(other)
    connection.executescript("CREATE TABLE session (id); CREATE TABLE message (id, data);")
    connection.close()
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.write(b" " * HEAD_BYTES)
        file.write(b'{"format": "holdfast.session"}')
        file.truncate(1024**3)
    own = sqlite_store.home / "holdfast.sqlite"
    for source in (other, broken, huge, own, b"", b"{}", b'{"format": "else"}', b"\xff\x00"):
        assert recognise(Source(source)) is None
    with pytest.raises(NotFound, match="cannot read absent"):
        recognise(Source(tmp_path / "absent"))


def test_to_recognise_a_file_leaves_it_and_its_folder_alone(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    sources = state_dbs(sqlite_store, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for source in sources:
        assert recognise(source) == "hermes"
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


class ToyImporter:
    """A program that keeps one message a line."""

    def sniff(self, source: Source) -> bool:
        return source.head().startswith(b"toy\n")

    def read(self, source: Source) -> Iterator[ForeignSession]:
        lines = source.whole(bytes_max=1000).decode().splitlines()
        said = [ForeignMessage(str(at), "operator", text, at) for at, text in enumerate(lines[1:])]
        yield ForeignSession("toy", "one", 5, said)


def test_a_new_importer_is_one_entry_of_the_table(
    library: SampleLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.IMPORTERS, "toy", ToyImporter())
    store = library.store
    assert isinstance(store, OpenStore)
    source = Source(b"toy\nhello quokka\nagain\x00")
    assert recognise(source) == "toy"
    (done,) = import_from(store, library.operator_id, "toy", source)
    assert (done["imported"], done["messages"]) == (True, 2)
    row = store.read(lambda db: sessions.get(db, done["session_id"]))
    assert (row.source, row.state, row.preview) == ("toy", "idle", "hello quokka")
    page = store.read(lambda db: messages.page(db, row.id, limit=9))
    assert [message.content for message, _ in page] == ["hello quokka", "again"]
    assert len(library.found("quokka")) == 1
    assert import_from(store, library.operator_id, "toy", source) == [{**done, "imported": False}]


def test_a_torn_file_of_lines_stores_nothing(sqlite_store: OpenStore, tmp_path: Path) -> None:
    source = exports(sqlite_store, tmp_path)[2]
    assert isinstance(source.content, Path)
    torn = Source(source.content.read_bytes()[:-10])
    with pytest.raises(BadRequest, match="neither JSON nor lines of JSON"):
        import_from(sqlite_store, OPERATOR, "holdfast", torn)
    # The whole line before the torn one was not stored: it is new now.
    whole = import_from(sqlite_store, OPERATOR, "holdfast", source)
    assert [one["imported"] for one in whole] == [True, False]


def test_a_source_has_limits_of_its_importer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / "long.json"
    long.write_bytes(b" " * (2 * 1024**2 + 1))
    monkeypatch.setattr(holdfast_export, "BYTES_MAX", 2 * 1024**2)
    with pytest.raises(PayloadTooLarge, match="at most 2 MiB"):
        next(IMPORTERS["holdfast"].read(Source(long)))
    with pytest.raises(BadRequest, match="a file of this machine"):
        next(IMPORTERS["hermes"].read(Source(b"SQLite format 3\x00")))
