"""The shapes of bodies and answers; an answer described by a `Shown` may carry more fields.

Sessions, messages, runs, checkpoints and compactions are TypedDicts beside the code in storage that
builds them: these have exactly the described fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict
from typing_extensions import TypedDict

from api.openapi import described
from holdfast.storage.sessions.message_views import MessageShown, TurnShown
from holdfast.storage.sessions.run_views import CallShown, RunShown
from holdfast.storage.sessions.session_views import SessionShown


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


class LooseningShown(TypedDict):
    """One value of a project file that allows more than the one that was trusted last."""

    area: str
    key: str
    trusted: Any
    wanted: Any


class TrustShown(TypedDict):
    """Whether all of the project file is in force, and which areas wait for the operator."""

    state: Literal["trusted", "pending"]
    dsl_hash: str
    loosens: list[str]
    details: list[LooseningShown]


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
    trust: TrustShown


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


class SessionsShown(TypedDict):
    """A page of sessions."""

    items: list[SessionShown]
    next_cursor: str | None


class MessagesShown(TypedDict):
    """A page of messages."""

    items: list[MessageShown] | list[TurnShown]
    next_cursor: str | None


class RunsShown(TypedDict):
    """A page of runs."""

    items: list[RunShown]
    next_cursor: str | None


class CallsShown(TypedDict):
    """A page of model calls."""

    items: list[CallShown]
    next_cursor: str | None


def shows(
    status: int, model: type[BaseModel], description: str = "", *, also: tuple[str, ...] = ()
) -> dict[int | str, dict[str, Any]]:
    """A documented answer, `also` in these media types; it is not checked again on its way out."""
    content: dict[str, Any] = {"application/json": {"schema": described(model)}}
    content |= {kind: {"schema": {"type": "string"}} for kind in also}
    return {status: {"description": description or "the answer", "content": content}}
