"""Names and kinship of sessions, and what removes them: resolve, aliases, lineage, purge, prune."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AliasChoices, Field

from api.dependencies import (
    NAME_CHARS_MAX,
    CurrentOperator,
    OwnSession,
    ServicesDep,
    StoreDep,
    find_own,
)
from api.errors import documented
from api.models import RequestBody, Shown, Text, shows
from api.openapi import AnswerRoute
from holdfast.domain.errors import BadRequest
from holdfast.memory.pool import directory_of
from holdfast.storage.database.engine import Db
from holdfast.storage.sessions import aliases, lineage, resolver, session_views, titles
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.upkeep import footprint, removal, retention
from holdfast.storage.upkeep.retention import Rules

router = APIRouter(tags=["library"], route_class=AnswerRoute)
AliasName = Annotated[str, Path(min_length=1, max_length=aliases.NAME_CHARS_MAX)]


class ResolvedShown(SessionShown):
    """The session that a name means, and how it was found."""

    session_id: str
    matched_by: str
    session: SessionShown


class LineageShown(Shown):
    """Where a session comes from and what came of it."""

    ancestors: list[dict[str, Any]]
    descendants: list[dict[str, Any]]


class AliasBody(RequestBody):
    """The session that the name shall mean: an id, an id prefix, another alias or a title."""

    session_id: Text = Field(
        min_length=1,
        max_length=NAME_CHARS_MAX,
        validation_alias=AliasChoices("session_id", "session"),
    )


class AliasShown(Shown):
    """A name and its session."""

    name: str
    session_id: str


class PruneBody(RequestBody):
    """Which ended sessions go."""

    older_than_days: int = Field(default=90, ge=0, le=36_500)
    source: Text | None = Field(default=None, max_length=64)
    dry_run: bool = False


@router.get("/resolve", responses=documented(404))
async def resolve_name(
    operator: CurrentOperator,
    store: StoreDep,
    name: Annotated[str, Query(min_length=1, max_length=NAME_CHARS_MAX)],
) -> ResolvedShown:
    """The session that a name means, and how: id, prefix, alias, title or lineage."""

    def look(db: Db) -> ResolvedShown:
        found = resolver.resolve(db, operator.id, name)
        view = session_views.view(db, found.session)
        return {
            **view,
            "session_id": found.session.id,
            "matched_by": found.matched_by,
            "session": view,
        }

    return await store.aread(look)


@router.get("/sessions/{session_id}/lineage", responses=shows(200, LineageShown) | documented(404))
async def show_lineage(session: OwnSession, store: StoreDep) -> dict[str, Any]:
    """Ancestors, the nearest first, and descendants, level by level."""
    return await store.aread(lambda db: lineage.lineage(db, session))


@router.get("/sessions/{session_id}/next-title", responses=shows(200, Shown) | documented(404))
async def show_next_title(session: OwnSession, store: StoreDep) -> dict[str, Any]:
    """The title for a continuation: X, then X #2, then X #3."""
    base = session.title or session.preview or session.id
    title = await store.aread(lambda db: titles.next_title(db, session.created_by, base))
    return {"title": title, "next_title": title, "base": titles.base_of(base)}


@router.get("/aliases", responses=shows(200, Shown))
async def list_aliases(operator: CurrentOperator, store: StoreDep) -> dict[str, Any]:
    """The caller's aliases by name."""
    items = await store.aread(lambda db: aliases.of_operator(db, operator.id))
    return {"items": items, "next_cursor": None}


@router.put("/aliases/{name}", responses=shows(200, AliasShown) | documented(404))
async def put_alias(
    name: AliasName, body: AliasBody, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Let the name mean this session, whatever it meant before."""

    def put(db: Db) -> dict[str, Any]:
        session = find_own(db, operator.id, body.session_id)
        return aliases.put(db, operator.id, name, session.id)

    return await store.awrite(put)


@router.delete("/aliases/{name}", responses=shows(200, Shown) | documented(404))
async def delete_alias(
    name: AliasName, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Let the name mean nothing."""
    await store.awrite(lambda db: aliases.remove(db, operator.id, name))
    return {"name": name, "deleted": True}


@router.post("/sessions/{session_id}/purge", responses=shows(200, Shown) | documented(404, 409))
async def purge_session(
    session: OwnSession, store: StoreDep, confirm: Annotated[bool, Query()] = False
) -> dict[str, Any]:
    """Remove the session's rows for good; refused while it is at work."""
    if not confirm:
        raise BadRequest("purging a session needs confirm=true")
    return await asyncio.to_thread(removal.purge, store, session.id)


@router.delete(
    "/sessions/{session_id}/messages", responses=shows(200, Shown) | documented(404, 409)
)
async def clear_messages(
    session: OwnSession,
    operator: CurrentOperator,
    store: StoreDep,
    confirm: Annotated[bool, Query()] = False,
) -> dict[str, Any]:
    """Forget everything that was said and keep the session."""
    if not confirm:
        raise BadRequest("clearing a session needs confirm=true")
    count = await asyncio.to_thread(removal.clear_messages, store, session.id, operator.id)
    return {"session_id": session.id, "messages_cleared": count}


@router.post("/sessions/prune", responses=shows(200, Shown))
async def prune_sessions(
    operator: CurrentOperator, store: StoreDep, body: PruneBody | None = None
) -> dict[str, Any]:
    """Purge the caller's ended sessions that are old enough; a dry run only names them."""
    wanted = body or PruneBody()
    return await asyncio.to_thread(
        removal.prune,
        store,
        operator.id,
        older_than_days=wanted.older_than_days,
        source=wanted.source,
        dry_run=wanted.dry_run,
    )


@router.get("/admin/retention", responses=shows(200, Shown))
async def show_retention(operator: CurrentOperator, services: ServicesDep) -> dict[str, Any]:
    """What the configuration archives and prunes by itself: the caller's due and done ones."""
    wanted = services.configuration.current.retention
    rules = Rules(wanted.archive_after_days, wanted.prune_after_days)
    found = await services.store.aread(lambda db: retention.view(db, operator.id, rules))
    return {**found, "dry_run": wanted.dry_run}


@router.get("/admin/storage", responses=shows(200, Shown))
async def show_storage(operator: CurrentOperator, services: ServicesDep) -> dict[str, Any]:
    """What the store takes on disk; the largest sessions are the caller's own."""
    memory = directory_of(services.settings.home, services.configuration.current)
    return await asyncio.to_thread(
        footprint.footprint, services.store, operator_id=operator.id, memory=memory
    )
