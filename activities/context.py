"""What a model is shown: the prompt in effect, the history that counts, and the open todos."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from activities.histories import Histories, History, as_turn
from activities.tools.requests import caller_of
from holdfast.agent.compaction import due, usable
from holdfast.agent.conversation import Turn
from holdfast.agent.prompts import TodoItem, has_todo_result, system_prompt, todo_reminder
from holdfast.agent.routes import Route, resolve
from holdfast.agent.tokens import context_size, context_window, estimate_tools, estimate_turns
from holdfast.agent.tools.offering import offered
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.canonical import sha256
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.settings.config import Config
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.issues import todos
from holdfast.storage.moves import compactions, prompt_edits
from holdfast.storage.projects import projects
from holdfast.storage.sessions import requests, sessions

SUMMARY = "summary"
ANSWERS = ("primary", "subagent")
# Above that a report is no count of what was sent: prose has four characters a token.
CHARS_PER_TOKEN_MAX = 8
# K-084: how much a context must have grown before it is compacted again after a rejection.
GROWTH = 1.1


@dataclass(frozen=True)
class Context:
    """Everything that one model call needs."""

    session: SessionRow
    project_file: ProjectFile
    spec: AgentSpec
    route: Route
    turns: list[Turn]
    tools: list[ToolSpec]
    messages: list[Message]  # in the order in which the model is shown them
    system_hash: str
    tokens: int
    window: int
    too_long: bool  # the upper mark is reached, and a compaction is to be asked for

    @property
    def estimated(self) -> int:
        """Its tokens by our own estimate, before any correction."""
        return _estimated(self.turns, self.tools)

    def descriptor(self, kind: str) -> dict[str, object]:
        """The request by reference: a growing conversation is never stored again."""
        return {
            "request_version": requests.VERSION,
            "kind": kind,
            "rendered": False,
            "message_ids": requests.ranges(self.messages),
            "message_count": len(self.messages),
            "system_hash": self.system_hash,
            "cache": {"id": self.session.cache_id},
            "provider": self.route.provider,
            "model": self.route.model,
        }


def build(
    db: Db,
    blobs: BlobStore,
    config: Config,
    session_id: str,
    *,
    agent_path: str = "primary",
    invocation_id: str | None = None,
    histories: Histories | None = None,
) -> Context:
    """The context of an agent as it is now; of what `histories` know, only the rest is read."""
    session = sessions.get(db, session_id)
    project_file = projects.file_of(db, session)
    spec = project_file.agent(agent_path)
    root = agent_path == "primary"
    route = resolve(config, spec.model, session.model_override if root else None)
    project = projects.get(db, session.created_by, session.project_id)
    tools = offered(caller_of(session, project_file, agent_path))
    prompt = system_prompt(
        prompt_edits.text_of(blobs, session, agent_path) or spec.system_prompt,
        project=Path(project.path),
        working_directory=Path(session.working_directory),
        tools=tools,
        subagents={name: one.description or "" for name, one in spec.subagents.items()},
    )
    history = (histories or Histories()).of(
        db, session, agent_path=agent_path, invocation_id=invocation_id
    )
    rows, shown = history.rows, in_order(history.rows)
    turns = [Turn("system", prompt), *_turns_of(history, shown)]
    reminder = _reminder(db, session, turns) if root else None
    if reminder is not None:
        turns.append(reminder)
    window = context_window(route, config)
    tokens = _reported_size(rows, turns, compactions.changed_at(db, session_id, agent_path))
    if not tokens:
        corrected = compactions.correction(db, session_id, agent_path)
        tokens = ceil(_estimated(turns, tools) * corrected)
    return Context(
        session=session,
        project_file=project_file,
        spec=spec,
        route=route,
        turns=turns,
        tools=tools,
        messages=shown,
        system_hash=sha256(prompt.encode("utf-8", "surrogatepass")),
        tokens=tokens,
        window=window,
        too_long=_is_too_long(db, session_id, agent_path, spec, tokens, window),
    )


def in_order(rows: list[Message]) -> list[Message]:
    """Summaries stand where what they sum up stood: before everything that is left."""
    summaries = [row for row in rows if row.meta.get("kind") == SUMMARY]
    if not summaries:
        return rows
    return summaries + [row for row in rows if row.meta.get("kind") != SUMMARY]


def _turns_of(history: History, shown: list[Message]) -> list[Turn]:
    if shown is history.rows:
        return history.turns
    turn_of = {row.id: turn for row, turn in zip(history.rows, history.turns, strict=True)}
    return [turn_of[row.id] for row in shown]


def _estimated(turns: list[Turn], tools: list[ToolSpec]) -> int:
    return estimate_turns(turns) + estimate_tools(tools)


def _is_too_long(
    db: Db, session_id: str, agent_path: str, spec: AgentSpec, tokens: int, window: int
) -> bool:
    reserved = spec.max_output_tokens
    if not due(tokens, upper=spec.compaction.upper, window=window, reserved=reserved):
        return False
    held_at = compactions.held_at(db, session_id, agent_path)
    return held_at is None or tokens >= held_at * GROWTH * usable(window, reserved)


def _reported_size(rows: list[Message], turns: list[Turn], changed_at: int) -> int | None:
    """What the last answer reported plus an estimate of what came after it; None without one.

    A report from before the last compaction is about another context, and one that cannot be
    true is left aside.
    """
    reported: int | None = None
    tail: list[Message] = []
    for row in reversed(rows):
        if row.role in ANSWERS and row.tokens and not row.meta.get("partial"):
            reported = row.tokens if row.created_at > changed_at else None
            break
        tail.append(row)
    if reported is None or any(row.meta.get("kind") == SUMMARY for row in tail):
        return None
    size = context_size(reported, [as_turn(row) for row in tail])
    # Some servers report a constant or nothing of what they were sent: no text is that dense.
    characters = sum(len(turn.text) for turn in turns)
    return size if size * CHARS_PER_TOKEN_MAX >= characters else None


def _reminder(db: Db, session: SessionRow, turns: list[Turn]) -> Turn | None:
    if session.bound_issue is None or has_todo_result(turns):
        return None
    open_todos = todos.open_todos(db, session.bound_issue)
    return todo_reminder([TodoItem(one.text, one.status) for one in open_todos])
