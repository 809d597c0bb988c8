"""The shapes that OpenAPI shows. Answers may carry more fields than are written here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from api.openapi import described


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("must not contain half of a surrogate pair")
    return text


# Text that both databases can store.
Text = Annotated[str, AfterValidator(_storable)]


class RequestBody(BaseModel):
    """A body: what it does not know, it refuses."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class ProjectShown(Shown):
    """A project."""

    id: str
    name: str
    path: str
    state: str
    dsl_hash: str
    running: int
    limit: int
    error: dict[str, Any] | None


class UsageShown(Shown):
    """What a session has used."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_calls: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None


class SessionShown(Shown):
    """A session."""

    id: str
    project_id: str
    created_by: str
    state: str
    title: str | None
    source: str
    mode: str
    created_at: int
    updated_at: int
    ended_at: int | None
    end_reason: str | None
    forked_from: str | None
    parent_session_id: str | None
    model_override: str | None
    bound_issue: str | None
    dsl_hash: str
    dsl_stale: bool
    current_head: str | None
    active_run: str | None
    current_checkpoint: str | None
    attached: bool
    allowed_actions: list[str]
    message_count: int
    tool_call_count: int
    usage: UsageShown
    failure: dict[str, Any] | None
    archived: bool
    pinned: bool
    preview: str
    last_active: int
    cage: str


class CauseShown(Shown):
    """Why a message no longer counts."""

    cause: str
    cause_id: str


class MessageShown(Shown):
    """A message."""

    id: str
    session_id: str
    run_id: str | None
    seq: int
    role: str
    agent_path: str
    content: str
    created_at: int
    superseded: bool
    superseded_by: list[CauseShown]
    metadata: dict[str, Any]


class RunShown(Shown):
    """A run."""

    id: str
    session_id: str
    created_at: int
    completed_at: int | None
    state: str
    operator_message: MessageShown | None
    primary_response: MessageShown | None
    subagent_invocations: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]
    error: dict[str, Any] | None
    duration_ms: int | None
    tokens_in: int
    tokens_out: int


class AcceptedShown(Shown):
    """A message that was taken."""

    message: MessageShown
    run: RunShown
    session: SessionShown


class PtyShown(Shown):
    """A terminal."""

    pty_id: str
    session_id: str
    state: str
    cols: int
    rows: int
    command: str
    created_at: int
    closed_at: int | None
    exit_code: int | None
    cage: str


class PtysShown(Shown):
    """A page of terminals."""

    items: list[PtyShown]
    next_cursor: str | None


class ProjectsShown(Shown):
    """A page of projects."""

    items: list[ProjectShown]
    next_cursor: str | None


class SessionsShown(Shown):
    """A page of sessions."""

    items: list[SessionShown]
    next_cursor: str | None


class MessagesShown(Shown):
    """A page of messages."""

    items: list[MessageShown]
    next_cursor: str | None


class RunsShown(Shown):
    """A page of runs."""

    items: list[RunShown]
    next_cursor: str | None


def shows(
    status: int, model: type[BaseModel], description: str = "", *, also: tuple[str, ...] = ()
) -> dict[int | str, dict[str, Any]]:
    """A documented answer, `also` in these media types; it is not checked again on its way out."""
    content: dict[str, Any] = {"application/json": {"schema": described(model)}}
    content |= {kind: {"schema": {"type": "string"}} for kind in also}
    return {status: {"description": description or "the answer", "content": content}}
