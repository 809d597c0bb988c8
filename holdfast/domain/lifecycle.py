"""The one table that moves a session: nothing else changes its state."""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.errors import ActionNotAllowed, SessionOver


class State(StrEnum):
    """Where a session stands."""

    IDLE = "idle"
    RUNNING = "running"
    QUEUED = "queued"
    PAUSED = "paused"
    ENDED = "ended"
    FAILED = "failed"


class Action(StrEnum):
    """What moves a session from one state to the next."""

    START = "start"
    QUEUE = "queue"
    DISCARD = "discard"
    FINISH = "finish"
    PAUSE = "pause"
    RESUME = "resume"
    SETTLE = "settle"
    ROLL_BACK = "roll_back"
    END = "end"
    FAIL = "fail"
    REOPEN = "reopen"


TRANSITIONS: dict[State, dict[Action, State]] = {
    State.IDLE: {
        Action.START: State.RUNNING,
        Action.QUEUE: State.QUEUED,
        Action.ROLL_BACK: State.IDLE,
        Action.END: State.ENDED,
        Action.FAIL: State.FAILED,
    },
    State.QUEUED: {
        Action.START: State.RUNNING,
        Action.DISCARD: State.IDLE,
        Action.END: State.ENDED,
        Action.FAIL: State.FAILED,
    },
    State.RUNNING: {
        Action.FINISH: State.IDLE,
        Action.PAUSE: State.PAUSED,
        Action.END: State.ENDED,
        Action.FAIL: State.FAILED,
    },
    State.PAUSED: {
        Action.RESUME: State.RUNNING,
        Action.SETTLE: State.IDLE,
        Action.ROLL_BACK: State.IDLE,
        Action.END: State.ENDED,
        Action.FAIL: State.FAILED,
    },
    State.FAILED: {Action.END: State.ENDED},
    State.ENDED: {Action.REOPEN: State.IDLE},
}

OVER = frozenset({State.ENDED, State.FAILED})

# What an operator may ask for in each state: names of commands, not of transitions.
COMMANDS: dict[State, tuple[str, ...]] = {
    State.IDLE: ("message", "rollback", "compact", "fork", "archive", "end"),
    State.RUNNING: ("checkpoint", "cancel", "fork", "end"),
    State.QUEUED: ("resume", "discard", "fork", "end"),
    State.PAUSED: ("inspect", "edit_prompt", "resume", "rollback", "cancel", "fork", "end"),
    State.ENDED: ("view", "fork", "archive", "reopen", "purge"),
    State.FAILED: ("view", "fork", "archive", "end", "purge"),
}


def next_state(state: State, action: Action) -> State:
    """The state `action` leads to, or a refusal if the table has no such edge."""
    try:
        return TRANSITIONS[state][action]
    except KeyError:
        refusal = SessionOver if state in OVER else ActionNotAllowed
        raise refusal(action, state) from None


def allowed_actions(state: State, *, cleanly_ended: bool = True) -> list[str]:
    """The commands that an operator may send now; the page has no rules of its own."""
    commands = COMMANDS[state]
    if state is State.ENDED and not cleanly_ended:
        commands = tuple(command for command in commands if command != "reopen")
    return list(commands)


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> idle: create"]
    for state, edges in TRANSITIONS.items():
        lines += [f"    {state} --> {target}: {action}" for action, target in edges.items()]
    return "\n".join(lines) + "\n"
