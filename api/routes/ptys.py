"""Terminals over HTTP: open, list, resize, close, and what they showed."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from api.dependencies import CommandId, OwnSession, ServicesDep, StoreDep
from api.errors import documented
from api.models import PtyShown, PtysShown, RequestBody, Text, shows
from api.services import Services
from api.terminals import refusal_of
from api.transcripts import FORMS, file_closed, transcript
from holdfast.domain.errors import Conflict, NotFound, Refusal
from holdfast.domain.lifecycle import OVER
from holdfast.domain.project_file import AgentSpec, subagent_path
from holdfast.settings.part_environments import given_by_name
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.projects import projects
from holdfast.storage.projects.owners import owner_of
from holdfast.storage.sessions import ptys
from holdfast.terminal.client import SpawnRequest
from holdfast.terminal.errors import TerminalError, UnknownProcess
from holdfast.terminal.records import COLUMNS_MAX, ROWS_MAX

router = APIRouter(tags=["terminals"])
PtyId = Annotated[str, Path(min_length=1, max_length=64)]
SHELL = "command -v bash >/dev/null && exec bash -i; exec sh -i"
ONE = shows(200, PtyShown) | documented(404, 409)
TRANSCRIPT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "what the terminal showed",
        "content": {kind: {"schema": {"type": "string"}} for kind in FORMS.values()},
    }
}


class Size(RequestBody):
    """Columns and rows."""

    cols: int = Field(default=80, ge=1, le=COLUMNS_MAX)
    rows: int = Field(default=24, ge=1, le=ROWS_MAX)


class NewPty(Size):
    """What runs in the terminal: a command, or a shell; as the root agent, or as a subagent."""

    subagent: Text | None = Field(default=None, min_length=1, max_length=64)
    command: Text | None = Field(default=None, min_length=1, max_length=100_000)


@router.post(
    "/sessions/{session_id}/ptys",
    status_code=201,
    responses=shows(201, PtyShown) | documented(404, 409),
)
async def open_pty(
    session: OwnSession, services: ServicesDep, pty_id: CommandId, body: NewPty | None = None
) -> dict[str, Any]:
    """A terminal in the session's working directory, in its agent's cage; at most eight."""
    wanted = body or NewPty()
    if session.state in OVER:
        raise Conflict(f"cannot open a terminal: the session is {session.state}")
    spec = await services.store.aread(lambda db: _may_open(db, session, pty_id, wanted.subagent))
    host_id = await services.terminals.host_for(session)
    pty = Pty(
        id=pty_id,
        session_id=session.id,
        subagent=wanted.subagent,
        command=wanted.command or "",
        host_id=host_id,
        cols=wanted.cols,
        rows=wanted.rows,
        cage="disabled" if spec.cage == "disabled" else "enabled",
    )
    await _spawn(services, session, pty, spec)
    try:
        return await services.store.awrite(lambda db: ptys.pty_json(db, ptys.opened(db, pty)))
    except Refusal:
        await (await services.terminals.client(host_id)).close(pty_id)
        raise


@router.get("/sessions/{session_id}/ptys", responses=shows(200, PtysShown) | documented(404))
async def list_ptys(session: OwnSession, store: StoreDep) -> dict[str, Any]:
    """The session's terminals, newest first."""

    def page(db: Db) -> list[dict[str, Any]]:
        return [ptys.pty_json(db, row) for row in ptys.of_session(db, session.id)]

    return {"items": await store.aread(page), "next_cursor": None}


@router.get("/sessions/{session_id}/ptys/{pty_id}", responses=ONE)
async def show_pty(session: OwnSession, pty_id: PtyId, store: StoreDep) -> dict[str, Any]:
    """One terminal."""
    return await store.aread(lambda db: _one(db, session.id, pty_id))


@router.delete("/sessions/{session_id}/ptys/{pty_id}", responses=ONE)
async def close_pty(session: OwnSession, pty_id: PtyId, services: ServicesDep) -> dict[str, Any]:
    """Kill what runs in the terminal and keep what it showed; closing twice is closing once."""
    store = services.store
    pty = await store.aread(lambda db: ptys.get(db, session.id, pty_id))
    if pty.state != "closed":
        client = await services.terminals.client(pty.host_id)
        try:
            with contextlib.suppress(UnknownProcess):
                await client.kill(pty_id, grace_s=1.0)
            await file_closed(services, pty)
            with contextlib.suppress(UnknownProcess):
                await client.close(pty_id)
        except TerminalError as error:
            raise refusal_of(error) from None
    return await store.aread(lambda db: _one(db, session.id, pty_id))


@router.post("/sessions/{session_id}/ptys/{pty_id}/resize", responses=ONE)
async def resize_pty(
    session: OwnSession, pty_id: PtyId, body: Size, services: ServicesDep
) -> dict[str, Any]:
    """Give the terminal another size; its programs get SIGWINCH."""
    store = services.store
    pty = await store.aread(lambda db: ptys.get(db, session.id, pty_id))
    if pty.state == "closed":
        raise Conflict("the terminal is closed")
    try:
        client = await services.terminals.client(pty.host_id)
        await client.resize(pty_id, cols=body.cols, rows=body.rows)
    except TerminalError as error:
        raise refusal_of(error) from None

    def note(db: Db) -> dict[str, Any]:
        change(db, Pty, pty_id, cols=body.cols, rows=body.rows)
        return _one(db, session.id, pty_id)

    return await store.awrite(note)


@router.get(
    "/sessions/{session_id}/ptys/{pty_id}/transcript",
    response_class=Response,
    responses=TRANSCRIPT | documented(404),
)
async def show_transcript(
    session: OwnSession,
    pty_id: PtyId,
    services: ServicesDep,
    format: Annotated[Literal["raw", "timed", "cast"], Query()] = "raw",  # noqa: A002 - on the wire
) -> Response:
    """Everything the terminal showed; `cast` plays with asciinema."""
    pty = await services.store.aread(lambda db: ptys.get(db, session.id, pty_id))
    return Response(await transcript(services, pty, format), media_type=FORMS[format])


def _one(db: Db, session_id: str, pty_id: str) -> dict[str, Any]:
    return ptys.pty_json(db, ptys.get(db, session_id, pty_id))


def _may_open(db: Db, session: SessionRow, pty_id: str, subagent: str | None) -> AgentSpec:
    """The agent whose cage the terminal gets; Conflict when there are eight already."""
    if ptys.find(db, pty_id) is None and ptys.live_count(db, session.id) >= ptys.LIVE_MAX:
        raise Conflict(f"a session has at most {ptys.LIVE_MAX} terminals")
    path = "primary" if subagent is None else subagent_path("primary", subagent)
    try:
        return projects.file_of(db, session).agent(path)
    except (KeyError, ValueError):
        raise NotFound("No such subagent.") from None


async def _spawn(services: Services, session: SessionRow, pty: Pty, spec: AgentSpec) -> None:
    owner = await services.store.aread(lambda db: owner_of(db, session))
    config = services.configuration.current
    request = SpawnRequest(
        key=pty.id,
        session_id=session.id,
        command=pty.command or SHELL,
        cwd=session.working_directory,
        project=owner.project_folder or None,
        unix_user=config.operators.unix_user.get(owner.operator),
        terminal=True,
        cols=pty.cols,
        rows=pty.rows,
        cage=None if spec.cage == "disabled" else spec.cage.model_dump(exclude_defaults=True),
        # The API has no keys but for embeddings: what a cage lets in of those is the worker's.
        env={} if spec.cage == "disabled" else given_by_name(spec.cage.env, os.environ),
        label=pty.command[:80] or "shell",
        scrollback_lines=config.terminals.scrollback_lines,
    )
    client = await services.terminals.client(pty.host_id)
    try:
        await client.spawn(request)
    except TerminalError as error:
        raise refusal_of(error) from None
