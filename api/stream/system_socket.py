"""`GET /api/v1/system/socket`: running counts, at connect too, and what sessions need."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from api import auth
from api.dependencies import services_of
from api.errors import refusal_answer
from api.services import Services
from api.stream.connection import AGAIN_CODE, NORMAL_CODE, SEND_S
from api.stream.outgoing import frame_text
from api.stream.tail import LOOK_AGAIN_S
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.events import RunningCount
from holdfast.storage.database.engine import Db
from holdfast.storage.log.feed import ANY
from holdfast.storage.sessions import running_counts
from holdfast.storage.sessions.running_counts import Change

router = APIRouter()
# On Postgres a transaction that began earlier may commit later; so old ones are looked at again.
OVERLAP_MS = 5_000
SEEN_MAX = 10_000
TOGETHER_S = 0.02
COUNTS, ATTENTION = RunningCount.kind, "sessions.attention"


@router.websocket("/system/socket")
async def system_socket(websocket: WebSocket) -> None:
    """Counts that the caller may see."""
    services = services_of(websocket)
    try:
        auth.check_host(services, websocket)
        auth.check_origin(services, websocket, required=False)
        operator = await auth.require(services, websocket)
    except Refusal as refusal:
        await websocket.send_denial_response(refusal_answer(refusal))
        return
    await websocket.accept()
    gauge = services.metrics.sockets.labels("system")
    gauge.inc()
    tell = asyncio.create_task(_tell(websocket, services, operator.id))
    listen = asyncio.create_task(_listen(websocket))
    try:
        await asyncio.wait({tell, listen}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gauge.dec()
        for task in (tell, listen):
            task.cancel()
        told, _ = await asyncio.gather(tell, listen, return_exceptions=True)
        with contextlib.suppress(RuntimeError, OSError):
            await websocket.close(AGAIN_CODE if isinstance(told, Unavailable) else NORMAL_CODE)


async def _listen(websocket: WebSocket) -> None:
    """Nothing can be asked here; reading keeps pings answered and sees the end."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        continue


async def _tell(websocket: WebSocket, services: Services, operator_id: str) -> None:
    with services.feed.listen(ANY) as listener:
        since = now_ms() - OVERLAP_MS

        def begin(db: Db) -> tuple[dict[str, Any], list[Change]]:
            known = running_counts.counts(db, operator_id)
            return known, running_counts.changes(db, operator_id, since)

        known, before = await services.store.aread(begin)
        seen = OrderedDict.fromkeys(change.id for change in before)
        await _send(websocket, COUNTS, known)
        while True:
            await listener.wait(LOOK_AGAIN_S)
            await asyncio.sleep(TOGETHER_S)
            found = await services.store.aread(
                lambda db: running_counts.changes(db, operator_id, since)  # noqa: B023 - awaited
            )
            for change in found:
                if change.id in seen:
                    continue
                seen[change.id] = None
                if change.kind == RunningCount.kind:
                    running_counts.apply(known, operator_id, change)
                    await _send(websocket, COUNTS, known)
                else:
                    await _send(websocket, ATTENTION, _needed(change))
            since = max(since, now_ms() - OVERLAP_MS)
            while len(seen) > SEEN_MAX:
                seen.popitem(last=False)


def _needed(change: Change) -> dict[str, Any]:
    """What the session needs since this change; None for nothing."""
    return {
        "session_id": change.data["session_id"],
        "attention": change.data.get("attention"),
    }


async def _send(websocket: WebSocket, kind: str, payload: dict[str, Any]) -> None:
    frame = frame_text("system", kind, payload)
    try:
        async with asyncio.timeout(SEND_S):
            await websocket.send_text(frame)
    except (TimeoutError, RuntimeError, OSError) as error:
        raise WebSocketDisconnect(1006) from error
