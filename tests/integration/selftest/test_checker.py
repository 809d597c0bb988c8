"""The self-test's checker: a sound store has no finding, and each broken promise has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from holdfast.domain.ids import new_id
from holdfast.selftest import report
from holdfast.selftest.checker import check
from holdfast.selftest.record import Record
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.log import events
from holdfast.storage.sessions import runs
from tests.support.stored_rows import execute_unchecked
from tests.support.workflow_double import WorkflowDouble

WORD = "wordx1"


class Scene:
    """A store with one finished message, a pause and a fork, and the record of it."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.workflow = WorkflowDouble(store)
        self.session_id = self.workflow.session()
        self.run_id = self.workflow.begin(self.session_id, f"{WORD}\nplease")
        self.checkpoint_id = self.workflow.pause(self.session_id).id
        self.workflow.resume(self.session_id, self.checkpoint_id)
        self.workflow.finish(self.run_id)
        self.message_id = store.read(lambda db: runs.get(db, self.run_id).operator_message or "")
        self.lines = folder / "ran.txt"
        self.kept = dbapi_module().connect(":memory:", check_same_thread=False)
        self._copy(into_store=False)
        self.restore()

    def restore(self) -> None:
        """Everything as it should be, again."""
        self._copy(into_store=True)
        self.lines.write_text("line1\n")
        self.record = record = Record()
        session_id = self.session_id
        record.acknowledge("session", session_id, session_id)
        record.acknowledge("message", session_id, self.message_id, word=WORD, run_id=self.run_id)
        record.acknowledge("checkpoint", session_id, self.checkpoint_id)
        record.acknowledge("resume", session_id, self.checkpoint_id)
        record.expect_line("line1", str(self.lines))
        seen = record.watch(session_id)
        for row in self.store.read(lambda db: events.after(db, session_id, 0, limit=1000)):
            seen.add("events", row.seq, row.kind)
        seen.due = {"events": seen.last("events"), "output": 0}

    def _copy(self, *, into_store: bool) -> None:
        with self.store.writer.connect() as connection:
            raw: Any = connection.connection.driver_connection
            connection.commit()
            source, target = (self.kept, raw) if into_store else (raw, self.kept)
            source.backup(target)

    def sql(self, statement: str, **values: object) -> None:
        """Change the store behind everybody's back."""
        self.store.write(lambda db: db.connection().execute(text(statement), values))

    def copy_message(self) -> None:
        """The same message a second time."""
        self.sql(
            "INSERT INTO messages (id, session_id, seq, role, agent_path, content, created_at,"
            " meta, tokens, pinned) SELECT :id, session_id, seq + 1000, role, agent_path, content,"
            " created_at, meta, tokens, pinned FROM messages WHERE id = :old",
            id=new_id(),
            old=self.message_id,
        )

    def second_run(self) -> None:
        """A run that begins while another is going on."""

        def begin(db: Db) -> None:
            for _ in range(2):
                runs.create(
                    db,
                    run_id=new_id(),
                    session_id=self.session_id,
                    message_id=new_id(),
                    user_id="",
                    state="running",
                    preview="",
                )

        self.store.write(begin)


@pytest.fixture(scope="module")
def whole_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("checked")
    store = open_store(None, home, synchronous="OFF")
    yield Scene(store, home)
    store.close()


@pytest.fixture
def scene(whole_scene: Scene) -> Scene:
    whole_scene.restore()
    return whole_scene


def kinds(scene: Scene) -> set[str]:
    return {finding.kind for finding in check(scene.store, scene.record)}


def test_a_store_that_kept_every_promise_has_no_finding(scene: Scene) -> None:
    assert check(scene.store, scene.record) == []


def _lose_a_fork(scene: Scene) -> None:
    scene.record.acknowledge("fork", scene.session_id, new_id())


def _refuse_what_is_stored(scene: Scene) -> None:
    scene.record.refuse(WORD)


def _see_a_gap(scene: Scene) -> None:
    del scene.record.seen[0].frames["events"][2]


def _miss_the_end(scene: Scene) -> None:
    seen = scene.record.seen[0]
    seen.due = {"events": seen.last("events") + 1}


def _miss_an_output_frame(scene: Scene) -> None:
    scene.record.seen[0].frames["output"] = [(1, "delta"), (3, "delta")]


def _see_nothing_of_the_output(scene: Scene) -> None:
    scene.record.seen[0].due = {"output": 1}


def _see_something_else(scene: Scene) -> None:
    seq, _ = scene.record.seen[0].frames["events"][2]
    scene.record.seen[0].frames["events"][2] = (seq, "something.else")


def _run_twice(scene: Scene) -> None:
    scene.lines.write_text("line1\nline1\n")


def _not_run(scene: Scene) -> None:
    scene.lines.write_text("")
    scene.sql(
        "INSERT INTO tool_calls (id, run_id, session_id, caller, provider_call_id, position,"
        " tool_name, input, output, state, attempt, created_at) VALUES (:id, :run, :session,"
        " 'primary', 'call', 0, 'shell', :input, :output, 'done', 1, 0)",
        id=new_id(),
        run=scene.run_id,
        session=scene.session_id,
        input='{"command": "echo line1 >> ran.txt"}',
        output='{"exit_code": 0}',
    )


def _cancel_nothing(scene: Scene) -> None:
    scene.record.acknowledge("cancel", scene.session_id, new_id())


def _roll_back_nothing(scene: Scene) -> None:
    scene.record.acknowledge("rollback", scene.session_id, scene.checkpoint_id)


def _lose_a_row(kind: str) -> Callable[[Scene], None]:
    return lambda scene: scene.record.acknowledge(kind, scene.session_id, new_id())


def _sql(statement: str) -> Callable[[Scene], None]:
    return lambda scene: scene.sql(statement)


def _lose_the_sessions(scene: Scene) -> None:
    execute_unchecked(scene.store, "DELETE FROM sessions")


BROKEN: dict[str, tuple[str, Callable[[Scene], None]]] = {
    "a message that is gone": ("message_lost", _sql("DELETE FROM messages WHERE role='operator'")),
    "a message that is there twice": ("message_twice", Scene.copy_message),
    "a refused message that is there": ("refused_but_done", _refuse_what_is_stored),
    "a run that is gone": ("run_lost", _sql("DELETE FROM runs")),
    "a run left open": ("run_open", _sql("UPDATE runs SET state = 'running'")),
    "two runs at once": ("illegal_order", Scene.second_run),
    "a state nobody moved to": ("illegal_order", _sql("UPDATE sessions SET state = 'paused'")),
    "a session that never stops": ("session_stuck", _sql("UPDATE sessions SET state = 'running'")),
    "a changed event": ("chain_broken", _sql("UPDATE events SET at = at + 1 WHERE seq = 3")),
    "a deleted event": ("chain_broken", _sql("DELETE FROM events WHERE seq = 4")),
    "a frame that was never shown": ("gap_in_stream", _see_a_gap),
    "an output frame that was never shown": ("gap_in_stream", _miss_an_output_frame),
    "a stream that ended too early": ("gap_in_stream", _miss_the_end),
    "a stream without any output": ("gap_in_stream", _see_nothing_of_the_output),
    "a frame that was shown otherwise": ("stream_differs", _see_something_else),
    "a command that ran twice": ("command_twice", _run_twice),
    "a command that did not run": ("command_lost", _not_run),
    "a session that is gone": ("session_lost", _lose_the_sessions),
    "a fork of nothing": ("fork_lost", _lose_a_fork),
    "a checkpoint that is gone": ("checkpoint_lost", _lose_a_row("checkpoint")),
    "a compaction that is gone": ("compaction_lost", _lose_a_row("compaction")),
    "a terminal that is gone": ("terminal_lost", _lose_a_row("terminal")),
    "a cancel that did nothing": ("cancel_lost", _cancel_nothing),
    "a resume that did nothing": (
        "resume_lost",
        _sql("UPDATE checkpoints SET resumed_at = NULL"),
    ),
    "a rollback that did nothing": ("rollback_lost", _roll_back_nothing),
    "a store that contradicts itself": ("store_inconsistent", _sql("DELETE FROM heads")),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_found(scene: Scene, what: str) -> None:
    kind, break_it = BROKEN[what]
    break_it(scene)
    assert kind in kinds(scene)


def test_what_was_found_on_the_way_is_in_the_verdict(scene: Scene) -> None:
    scene.record.kill("worker")
    scene.record.find("search_missed", "wordx9 was acknowledged and is not found")
    findings = check(scene.store, scene.record)
    outcome = report.as_json(scene.record, findings, seed="7", minutes=2.0)
    words = report.verdict(outcome, home="the-home")
    assert outcome["verdict"] == "failed"
    assert "1 kills (worker 1)" in words
    assert "search_missed: wordx9" in words
    assert "--seed 7 --minutes 2" in words
