"""What routes ask for: the caller, the caller's session, the store, the way to the workflows."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from api import auth
from api.services import Services
from holdfast.domain.errors import NotFound
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator, SessionRow
from holdfast.storage.sessions import resolver
from holdfast.temporal.sessions import SessionCommands

NAME_CHARS_MAX = 256
PAGE_MAX = 500


def services_of(request: HTTPConnection) -> Services:
    """The services of this process."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
_bearer = HTTPBearer(auto_error=False, description="A token of `holdfast token`.")


async def current_operator(
    request: Request, services: ServicesDep, _token: Annotated[object, Depends(_bearer)]
) -> Operator:
    """Who asks."""
    return await auth.require(services, request)


def _store(services: ServicesDep) -> OpenStore:
    return services.store


def _commands(services: ServicesDep) -> SessionCommands:
    return services.commands


def command_id(request: Request) -> str:
    """The id of this act: kept with its Idempotency-Key, or fresh. Make row ids from it."""
    kept = getattr(request.state, "command_id", None)
    return str(kept) if kept else new_id()


CurrentOperator = Annotated[Operator, Depends(current_operator)]
StoreDep = Annotated[OpenStore, Depends(_store)]
CommandsDep = Annotated[SessionCommands, Depends(_commands)]
CommandId = Annotated[str, Depends(command_id)]
PageLimit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
PageCursor = Annotated[str | None, Query(max_length=512)]


async def own_session(
    session_id: Annotated[str, Path(min_length=1, max_length=NAME_CHARS_MAX)],
    operator: CurrentOperator,
    store: StoreDep,
) -> SessionRow:
    """The caller's session by id, id prefix, alias or title; another's is as good as none."""
    return await store.aread(lambda db: find_own(db, operator.id, session_id))


OwnSession = Annotated[SessionRow, Depends(own_session)]


def find_own(db: Db, operator_id: str, name: str) -> SessionRow:
    """The operator's session that `name` means, or NotFound."""
    if "\0" in name or len(name) > NAME_CHARS_MAX:
        raise NotFound(resolver.MISSING)  # a socket's address has not been through validation
    return resolver.resolve(db, operator_id, name).session
