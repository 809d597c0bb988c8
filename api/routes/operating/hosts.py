"""Hosts: the machines that sessions work on, which of them take new ones, and who works where."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from api.dependencies import CommandId, CommandsDep, CurrentOperator, OwnSession, StoreDep
from api.errors import documented, gone_as_conflict
from api.models import RequestBody, Shown, Text, shows
from api.openapi import AnswerRoute
from api.routes.sessions import shown
from holdfast.domain.commands import Move
from holdfast.domain.errors import Forbidden
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator
from holdfast.storage.hosts import hosts
from holdfast.storage.projects import operators
from holdfast.storage.sessions.session_views import SessionShown

router = APIRouter(tags=["hosts"], route_class=AnswerRoute)
HostId = Annotated[str, Path(min_length=1, max_length=64)]


class HostsShown(Shown):
    """Every host."""

    items: list[hosts.HostShown]
    next_cursor: str | None


class Target(RequestBody):
    """Where to."""

    host_id: Text = Field(min_length=1, max_length=64)


@router.get("/hosts", responses=shows(200, HostsShown))
async def list_hosts(operator: CurrentOperator, store: StoreDep) -> dict[str, Any]:
    """Every host; its sessions and terminals are counted as far as the caller may know of them."""
    owner = None if operator.name == operators.DEFAULT_OPERATOR else operator.id
    return {"items": await store.aread(lambda db: hosts.shown(db, owner)), "next_cursor": None}


@router.post("/hosts/{host_id}/drain", responses=documented(403, 404))
async def drain_host(
    host_id: HostId, operator: CurrentOperator, store: StoreDep
) -> hosts.HostShown:
    """Place no new sessions there; those that it has go on."""
    return await _drain(store, operator, host_id, draining=True)


@router.post("/hosts/{host_id}/undrain", responses=documented(403, 404))
async def undrain_host(
    host_id: HostId, operator: CurrentOperator, store: StoreDep
) -> hosts.HostShown:
    """Place new sessions there again."""
    return await _drain(store, operator, host_id, draining=False)


@router.post("/sessions/{session_id}/move", responses=documented(404, 409))
async def move_session(
    session: OwnSession,
    body: Target,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> SessionShown:
    """Have an idle or paused session go on on another host, which must have its folder."""
    command = Move(command_id=command_id, user_id=operator.id, host_id=body.host_id)
    await gone_as_conflict(commands.send(session, "move", command))
    return await shown(store, session.id)


async def _drain(
    store: OpenStore, operator: Operator, host_id: str, *, draining: bool
) -> hosts.HostShown:
    if operator.name != operators.DEFAULT_OPERATOR:
        raise Forbidden("hosts serve the sessions of all: only the operator `local` drains them")

    def drain(db: Db) -> hosts.HostShown:
        hosts.drain(db, host_id, draining=draining)
        (found,) = [one for one in hosts.shown(db, None) if one["id"] == host_id]
        return found

    return await store.awrite(drain)
