"""Rollback, compaction, discard, retry and forks compose in any order: against a model of lists.

The model copies whole conversations where the product keeps references, so whatever a source does
after a fork must not show in the fork, and every head must stay what it was when it was made.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import open_store
from holdfast.storage.moves import compactions
from holdfast.storage.sessions import messages
from tests.support.workflow_double import WorkflowDouble, comparable

SESSIONS_MAX = 5
_pick = st.integers(0, 1000)


@dataclass
class Conversation:
    """Messages in order, each with the causes that hold it down."""

    causes: dict[str, set[str]] = field(default_factory=dict)

    def shown(self) -> list[tuple[str, list[str]]]:
        return [(key, sorted(causes)) for key, causes in self.causes.items()]


@dataclass
class Done:
    """A compaction that is in effect."""

    id: str
    messages: list[str]
    summary: str


@dataclass
class Session:
    """One session of the model."""

    id: str
    now: Conversation = field(default_factory=Conversation)
    compactions: list[Done] = field(default_factory=list)
    checkpoints: list[tuple[str, Conversation]] = field(default_factory=list)
    heads: list[tuple[str, Conversation]] = field(default_factory=list)
    # Heads that build on each other up to now, each with how many messages it holds.
    line: list[tuple[str, int]] = field(default_factory=list)


class History(RuleBasedStateMachine):
    """Everything that changes what a conversation counts."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-"))
        shutil.copytree(self.template, self.folder / "home")
        self.store = open_store(None, self.folder / "home", synchronous="OFF")
        self.workflow = WorkflowDouble(self.store)
        self.sessions = [Session(self.workflow.session())]
        self.states: dict[str, dict[str, Any]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def _take_over(self, session: Session) -> None:
        """Messages that the product added by itself: the model knows them by their place."""
        for key, _ in self.workflow.seen(session.id)[len(session.now.causes) :]:
            session.now.causes[key] = set()

    def _session(self, pick: int) -> Session:
        return self.sessions[pick % len(self.sessions)]

    def _keep_head(self, session: Session, head_id: str) -> None:
        session.heads.append((head_id, copy.deepcopy(session.now)))
        session.line.append((head_id, len(session.now.causes)))
        self.states[head_id] = self.workflow.state_in_tables(session.id)

    @rule(pick=_pick)
    def run(self, pick: int) -> None:
        session = self._session(pick)
        head_id = self.workflow.run(session.id)
        self._take_over(session)
        self._keep_head(session, head_id)

    @rule(pick=_pick)
    def pause(self, pick: int) -> None:
        session = self._session(pick)
        run_id = self.workflow.begin(session.id)
        self._take_over(session)
        made = self.workflow.pause(session.id)
        saved = copy.deepcopy(session.now)
        session.checkpoints.append((made.id, saved))
        assert made.head_id is not None
        self._keep_head(session, made.head_id)
        self.workflow.resume(session.id)
        head_id = self.workflow.finish(run_id)
        self._take_over(session)
        self._keep_head(session, head_id)

    @rule(pick=_pick, cause=st.sampled_from(["discard", "retry"]), which=_pick)
    def supersede(self, pick: int, cause: str, which: int) -> None:
        session = self._session(pick)
        if not session.now.causes:
            return
        key = list(session.now.causes)[which % len(session.now.causes)]
        cause_id = new_id()
        assert self.workflow.supersede(session.id, [key], cause, cause_id) == 1
        session.now.causes[key].add(f"{cause}:{cause_id}")

    @rule(pick=_pick, start=_pick, count=st.integers(1, 4))
    def compact(self, pick: int, start: int, count: int) -> None:
        session = self._session(pick)
        live = [key for key, causes in session.now.causes.items() if not causes]
        chosen = live[start % len(live) :][:count] if live else []
        if not chosen:
            return
        record = self.workflow.compact(session.id, chosen)
        for key in chosen:
            session.now.causes[key].add(f"compaction:{record.id}")
        self._take_over(session)
        assert record.summary_message_id is not None
        session.compactions.append(Done(record.id, chosen, record.summary_message_id))

    @rule(pick=_pick)
    def undo_compaction(self, pick: int) -> None:
        session = self._session(pick)
        if not session.compactions:
            return
        done = session.compactions.pop()
        self.workflow.store.write(lambda db: compactions.undo(db, session.id, done.id))
        for key in done.messages:
            session.now.causes[key].discard(f"compaction:{done.id}")
        session.now.causes[done.summary].add(f"discard:{done.id}")

    @rule(pick=_pick, which=_pick)
    def roll_back(self, pick: int, which: int) -> None:
        session = self._session(pick)
        if not session.checkpoints:
            return
        place = which % len(session.checkpoints)
        checkpoint_id, saved = session.checkpoints[place]
        del session.checkpoints[place + 1 :]
        causes = session.now.causes
        later = list(causes)[len(saved.causes) :]
        live = sum(1 for key in later if not causes[key])
        before = set(saved.causes)
        for done in session.compactions[:]:
            if done.summary not in before:
                session.compactions.remove(done)
                for key in done.messages:
                    causes[key].discard(f"compaction:{done.id}")
        for key in later:
            causes[key].add(f"rollback:{checkpoint_id}")
        outcome = self.workflow.roll_back(session.id, checkpoint_id)
        assert outcome.messages_superseded == live
        assert self.workflow.row(session.id).state == "idle"
        self._cut_line(session, len(saved.causes))

    @rule(pick=_pick, which=_pick)
    def roll_back_to_message(self, pick: int, which: int) -> None:
        session = self._session(pick)
        causes = session.now.causes
        asked = [key for key in causes if self._is_operators(key)]
        if not asked:
            return
        message_id = asked[which % len(asked)]
        place = list(causes).index(message_id)
        later, before = list(causes)[place:], set(list(causes)[:place])
        checkpoint_id = new_id()
        back = partial(self.workflow.roll_back_to_message, session.id, message_id)
        if not all(one.startswith("compaction:") for one in causes[message_id]):
            with pytest.raises(Conflict, match="no part of the conversation"):
                back()
            return
        if self._inherited_since(session, before, later):
            with pytest.raises(Conflict, match="was compacted after this message"):
                back()
            return
        live = sum(1 for key in later if not causes[key])
        assert back(checkpoint_id=checkpoint_id).messages_superseded == live
        for done in [one for one in session.compactions if one.summary not in before]:
            session.compactions.remove(done)
            for key in done.messages:
                causes[key].discard(f"compaction:{done.id}")
        for key in later:
            causes[key].add(f"rollback:{checkpoint_id}")
        session.checkpoints = [one for one in session.checkpoints if len(one[1].causes) <= place]
        self._cut_line(session, place)

    def _cut_line(self, session: Session, count: int) -> None:
        """The session stands at its newest head that holds no more messages than that."""
        session.line = [(head_id, held) for head_id, held in session.line if held <= count]
        expected = session.line[-1][0] if session.line else None
        assert self.workflow.row(session.id).current_head == expected

    def _is_operators(self, message_id: str) -> bool:
        message = self.store.read(lambda db: messages.find(db, message_id))
        return message is not None and message.role == "operator"

    def _inherited_since(self, session: Session, before: set[str], later: list[str]) -> bool:
        """Whether a compaction of a source took something away whose summary comes later."""
        own = {done.id for done in session.compactions}
        held = {
            one.removeprefix("compaction:")
            for key in before
            for one in session.now.causes[key]
            if one.startswith("compaction:")
        }
        return any(self._summary_of(one) in later for one in held - own)

    def _summary_of(self, compaction_id: str) -> str | None:
        found = self.store.read(lambda db: compactions.find(db, compaction_id))
        return None if found is None else found.summary_message_id

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(pick=_pick, which=_pick, kind=st.sampled_from(["now", "checkpoint", "head"]))
    def fork(self, pick: int, which: int, kind: str) -> None:
        source = self._session(pick)
        options: dict[str, str] = {}
        saved = source.now
        if kind == "checkpoint" and source.checkpoints:
            checkpoint_id, saved = source.checkpoints[which % len(source.checkpoints)]
            options = {"checkpoint_id": checkpoint_id}
        elif kind == "head" and source.heads:
            head_id, saved = source.heads[which % len(source.heads)]
            options = {"head_id": head_id}
        fork_id = self.workflow.fork(source.id, **options)
        self.sessions.append(Session(fork_id, copy.deepcopy(saved)))

    @invariant()
    def every_session_sees_what_the_model_sees(self) -> None:
        for session in self.sessions:
            assert self.workflow.seen(session.id) == session.now.shown()

    @invariant()
    def the_newest_heads_hold_what_the_tables_said(self) -> None:
        for session in self.sessions:
            for head_id, _ in session.heads[-1:]:
                self._check_head(head_id)

    def _check_head(self, head_id: str) -> None:
        assert comparable(self.workflow.state(head_id)) == self.states[head_id]


@pytest.fixture
def template(migrated_home: Path) -> Path:
    History.template = migrated_home
    return migrated_home


def run_machine(examples: int, steps: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.req("K-066", "K-085", "K-112", "F-031", "F-033")
def test_operations_on_history_compose_in_any_order(template: Path) -> None:
    run_machine(examples=4, steps=10)


@pytest.mark.slow
@pytest.mark.req("K-066", "K-085", "K-112", "F-031", "F-033")
def test_operations_on_history_compose_in_any_order_for_long(template: Path) -> None:
    run_machine(examples=60, steps=40)
