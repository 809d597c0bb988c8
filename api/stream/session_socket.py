"""`GET /api/v1/sessions/{id}/socket`: who may attach is decided before the upgrade."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from api import auth
from api.dependencies import find_own, services_of
from api.errors import refusal_answer
from api.services import Services
from api.stream.connection import Connection
from holdfast.domain.errors import Conflict, Refusal
from holdfast.domain.events import SessionDetached
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Operator
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions

router = APIRouter()
TRUE = frozenset({"1", "true", "yes"})


@router.websocket("/sessions/{session_id}/socket")
async def session_socket(websocket: WebSocket, session_id: str) -> None:
    """The session's frames; one operator is attached, observers only watch."""
    services = services_of(websocket)
    observer = websocket.query_params.get("observe", "").lower() in TRUE
    try:
        auth.check_host(services, websocket)
        auth.check_origin(services, websocket, required=False)
        operator = await auth.require(services, websocket)
        row = await services.store.aread(lambda db: find_own(db, operator.id, session_id))
        holder = None if observer else await _attach(services, row.id)
    except Refusal as refusal:
        await websocket.send_denial_response(refusal_answer(refusal))
        return
    gauge = services.metrics.sockets.labels("observer" if observer else "operator")
    gauge.inc()
    reason = "error"
    connection = Connection(websocket, services, row.id, operator, observer=observer)
    try:
        await websocket.accept()
        reason = await connection.serve()
    finally:
        gauge.dec()
        if holder is not None:
            await services.hub.detach(row.id, holder)
            if connection.came:
                await _record_leaving(services, row.id, operator, reason)


async def _attach(services: Services, session_id: str) -> str:
    holder = await services.hub.attach(session_id)
    if holder is None:
        raise Conflict("somebody is attached to this session; ?observe=1 only watches")
    return holder


async def _record_leaving(
    services: Services, session_id: str, operator: Operator, reason: str
) -> None:
    def leave(db: Db) -> None:
        if sessions.find(db, session_id) is not None:
            left = SessionDetached(session_id=session_id, reason=reason, user_id=operator.id)
            events.append(db, session_id, left)

    await services.hub.write_once_possible(leave)
