"""The checks of a fleet: a sound store has no finding, and each broken promise has its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.selftest.fleet.checker import check
from holdfast.selftest.fleet.record import FleetRecord
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import change, insert_once, table
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import Pty, PtyTranscript
from holdfast.storage.database.tables_hosts import Execution
from tests.support.workflow_double import WorkflowDouble

WORD, LINES = "word1x1x0", 4
TEXT = "".join(f"{WORD}-{number}\r\n" for number in range(1, LINES + 1))
COMMAND = f"seq -f '{WORD}-%.0f' 1 {LINES}; echo {WORD} >> ran.txt"


class Scene:
    """A session on the first of two hosts, with one command in a terminal that ended well."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.record = FleetRecord()
        self.states = {name: folder / name for name in ("first", "second")}
        self.lines = folder / "ran.txt"
        self.lines.write_text(f"{WORD}\n")
        self.record.expect_line(WORD, str(self.lines))
        self.record.expect_output(WORD, LINES)
        workflow = WorkflowDouble(store)
        self.session_id = workflow.session()
        self.run_id = workflow.begin(self.session_id, "please")
        workflow.finish(self.run_id)
        self.call_id = new_id()
        self.blob = store.blobs.put(TEXT.encode() * 100, "text/plain")
        store.write(self._fill)
        self.start(self.call_id, "first")

    def start(self, key: str, host: str) -> None:
        """What a terminal host keeps of a process."""
        folder = self.states[host] / "processes" / hashlib.sha256(key.encode()).hexdigest()[:32]
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(json.dumps({"request": {"key": key}}))

    def _fill(self, db: Db) -> None:
        session_id, call_id = self.session_id, self.call_id
        change(db, SessionRow, session_id, host_id="first")
        blobs.commit(db, self.blob)
        output = {"exit_code": 0, "output": TEXT, "truncated": False, "pty_id": call_id}
        call = ToolCallRow(
            id=call_id, run_id=self.run_id, session_id=session_id, caller="primary",
            provider_call_id="call", position=0, tool_name="shell", input={"command": COMMAND},
            output=output, state="done", attempt=1, created_at=now_ms(),
        )  # fmt: skip
        insert_once(db, ToolCallRow, call.model_dump())
        claim = Execution(
            call_id=call_id, session_id=session_id, host_id="first", epoch=1, state="done"
        )
        insert_once(db, Execution, claim.model_dump())
        pty = Pty(
            id=call_id, session_id=session_id, run_id=self.run_id, tool_call_id=call_id,
            command=COMMAND, state="closed", exit_code=0, host_id="first",
        )  # fmt: skip
        insert_once(db, Pty, pty.model_dump())
        shown = PtyTranscript(
            id=new_id(), session_id=session_id, pty_id=call_id, transcript=self.blob.id, text=TEXT
        )
        insert_once(db, PtyTranscript, shown.model_dump())

    def sql(self, model: type, **values: object) -> None:
        """Change the row of the call."""
        self.store.write(lambda db: change(db, model, self.call_id, **values))


@pytest.fixture
def scene(tmp_path: Path, migrated_home: Path) -> Iterator[Scene]:
    shutil.copytree(migrated_home, tmp_path / "home")
    store = open_store(None, tmp_path / "home", synchronous="OFF")
    yield Scene(store, tmp_path)
    store.close()


def kinds(scene: Scene) -> set[str]:
    return {finding.kind for finding in check(scene.store, scene.record, scene.states)}


def test_a_fleet_that_kept_every_promise_has_no_finding(scene: Scene) -> None:
    assert check(scene.store, scene.record, scene.states) == []


def _cut_the_output(scene: Scene) -> None:
    output = {"exit_code": 0, "output": TEXT[:20], "truncated": False}
    scene.sql(ToolCallRow, output=output)


def _lose_the_blob(scene: Scene) -> None:
    output = {"exit_code": 0, "output": "", "truncated": True, "output_ref": "sha256:" + "0" * 64}
    scene.sql(ToolCallRow, output=output)


def _say_a_line_twice(scene: Scene) -> None:
    scene.sql(ToolCallRow, output={"exit_code": 0, "output": TEXT + TEXT, "truncated": False})


def _cut_the_transcript(scene: Scene) -> None:
    scene.store.write(
        lambda db: db.connection().execute(update(table(PtyTranscript)).values(text=TEXT[:20]))
    )


def _delete_the_blob(scene: Scene) -> None:
    assert scene.store.blobs.delete(scene.blob.id, before_s=time.time() + 60)


def _drop_the_transcript(scene: Scene) -> None:
    scene.store.write(lambda db: db.connection().execute(delete(table(PtyTranscript))))


def _double_the_line(scene: Scene) -> None:
    scene.lines.write_text(f"{WORD}\n{WORD}\n")


BROKEN: dict[str, tuple[str, Callable[[Scene], None]]] = {
    "a command that ran twice": ("command_twice", _double_the_line),
    "a command that was started on two hosts": (
        "started_twice",
        lambda scene: scene.start(scene.call_id, "second"),
    ),
    "a claim for another host": (
        "command_elsewhere",
        lambda scene: scene.sql(Execution, host_id="second"),
    ),
    "a terminal that is filed elsewhere": (
        "terminal_elsewhere",
        lambda scene: scene.sql(Pty, host_id="second"),
    ),
    "a session on a host that nobody knows": (
        "unknown_host",
        lambda scene: scene.store.write(
            lambda db: change(db, SessionRow, scene.session_id, host_id="third")
        ),
    ),
    "a claim that stays open": ("claim_open", lambda scene: scene.sql(Execution, state="claimed")),
    "a terminal that stays open": ("terminal_open", lambda scene: scene.sql(Pty, state="active")),
    "an output that is cut": ("output_not_whole", _cut_the_output),
    "an output whose blob is gone": ("output_not_whole", _lose_the_blob),
    "an output that is there twice": ("output_not_whole", _say_a_line_twice),
    "a transcript that is cut": (
        "transcript_not_whole",
        _cut_the_transcript,
    ),
    "a transcript whose blob is gone": (
        "transcript_lost",
        _delete_the_blob,
    ),
    "a terminal without a transcript": ("transcript_lost", _drop_the_transcript),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_of_a_fleet_is_found(scene: Scene, what: str) -> None:
    kind, break_it = BROKEN[what]
    break_it(scene)
    assert kind in kinds(scene)
