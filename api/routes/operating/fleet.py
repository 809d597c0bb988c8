"""Joining a fleet: a machine with an invitation has its key signed. The invitation is its login."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from api import auth
from api.dependencies import ServicesDep
from api.errors import documented
from api.models import RequestBody, Shown, Text, shows
from holdfast.domain.errors import Unauthenticated
from holdfast.fleet import authority, invitations

router = APIRouter(tags=["fleet"])


class Joining(RequestBody):
    """The secret of an invitation, and the request to sign a key."""

    secret: Text = Field(min_length=1, max_length=200)
    request: Text = Field(min_length=1, max_length=authority.REQUEST_BYTES_MAX)


@router.post("/fleet/join", responses=shows(200, Shown) | documented(400, 401, 429))
async def join(body: Joining, request: Request, services: ServicesDep) -> dict[str, Any]:
    """The machine's certificate and the fleet's authority."""
    folder = services.settings.fleet_dir
    try:
        invitation = await asyncio.to_thread(invitations.take, folder, body.secret)
    except Unauthenticated:
        logins: auth.FailedLogins = request.app.state.failed_logins
        await logins.count(auth.address_of(request))
        raise
    signed = await asyncio.to_thread(
        authority.sign, folder, body.request.encode(), invitation.machine_id, invitation.roles
    )
    ca = await asyncio.to_thread((folder / authority.CA).read_text)
    return {"machine_id": invitation.machine_id, "certificate": signed.decode(), "ca": ca}
