"""The lifecycle table: every state with every action, against DESIGN section 3."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.domain.errors import ActionNotAllowed, SessionOver
from holdfast.domain.lifecycle import (
    COMMANDS,
    OVER,
    TRANSITIONS,
    Action,
    State,
    allowed_actions,
    mermaid,
    next_state,
)

# Written out again on purpose: the table may not change without this test.
EDGES = {
    ("idle", "start"): "running",
    ("idle", "queue"): "queued",
    ("queued", "start"): "running",
    ("queued", "discard"): "idle",
    ("running", "finish"): "idle",
    ("running", "pause"): "paused",
    ("paused", "resume"): "running",
    ("paused", "settle"): "idle",
    ("paused", "roll_back"): "idle",
    ("idle", "roll_back"): "idle",
    ("idle", "end"): "ended",
    ("queued", "end"): "ended",
    ("running", "end"): "ended",
    ("paused", "end"): "ended",
    ("failed", "end"): "ended",
    ("idle", "fail"): "failed",
    ("queued", "fail"): "failed",
    ("running", "fail"): "failed",
    ("paused", "fail"): "failed",
    ("ended", "reopen"): "idle",
}


@pytest.mark.req(
    "K-007",
    "K-008",
    "K-009",
    "K-010",
    "K-011",
    "K-012",
    "K-019",
    "K-020",
    "K-022",
    "K-023",
    "K-024",
    "K-025",
    "K-144",
)
@pytest.mark.parametrize(("state", "action"), list(itertools.product(State, Action)))
def test_the_table_has_exactly_the_edges_of_the_design(state: State, action: Action) -> None:
    expected = EDGES.get((state.value, action.value))
    if expected is not None:
        assert next_state(state, action) == expected
        return
    with pytest.raises(SessionOver if state in OVER else ActionNotAllowed) as refused:
        next_state(state, action)
    assert refused.value.details == {"action": action, "state": state}
    assert refused.value.status == (410 if state in OVER else 409)


@pytest.mark.req("K-025")
def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {target for edges in TRANSITIONS.values() for target in edges.values()}
    assert reached == set(State)


@pytest.mark.req("K-008")
def test_the_commands_of_a_state_fit_its_edges() -> None:
    moves = {
        "message": Action.START,
        "checkpoint": Action.PAUSE,
        "discard": Action.DISCARD,
        "rollback": Action.ROLL_BACK,
        "end": Action.END,
        "reopen": Action.REOPEN,
    }
    assert set(COMMANDS) == set(State)
    for state, (command, action) in itertools.product(State, moves.items()):
        offered = command in allowed_actions(state)
        possible = action in TRANSITIONS[state]
        if command == "message":
            possible = state is State.IDLE  # from the queue it is a resume
        assert offered == possible, f"{command} while {state}"


@pytest.mark.req("K-007", "K-008", "K-009", "K-010", "K-011", "K-012")
@pytest.mark.parametrize(
    ("state", "offered", "refused"),
    [
        (State.IDLE, "message end", "checkpoint cancel resume discard"),
        (State.RUNNING, "checkpoint cancel end", "message resume discard rollback"),
        (State.QUEUED, "resume discard end", "message checkpoint rollback"),
        (State.PAUSED, "inspect edit_prompt resume rollback end", "message checkpoint discard"),
        (State.ENDED, "view", "message checkpoint cancel resume discard rollback end"),
        (State.FAILED, "view", "message checkpoint cancel resume discard rollback reopen"),
    ],
)
def test_a_state_offers_what_the_requirements_name(
    state: State, offered: str, refused: str
) -> None:
    commands = set(allowed_actions(state))
    assert set(offered.split()) <= commands
    assert not set(refused.split()) & commands


def test_only_a_clean_end_offers_to_reopen() -> None:
    assert "reopen" in allowed_actions(State.ENDED)
    assert "reopen" not in allowed_actions(State.ENDED, cleanly_ended=False)


def test_the_diagram_shows_every_edge_and_is_in_the_docs() -> None:
    drawn = mermaid()
    for (state, action), target in EDGES.items():
        assert f"    {state} --> {target}: {action}\n" in drawn
    assert drawn.count("-->") == len(EDGES) + 1
    page = Path(__file__).parents[3] / "docs" / "lifecycle.md"
    assert drawn.strip() in page.read_text(encoding="utf-8")
