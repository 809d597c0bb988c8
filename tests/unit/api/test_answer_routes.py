"""Routes describe their answers by type and do not check them again on their way out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from api.openapi import AnswerRoute
from api.routes import ROUTERS
from holdfast.storage.sessions.session_views import SessionShown


def test_the_return_type_of_an_endpoint_is_its_documented_answer() -> None:
    router = APIRouter(route_class=AnswerRoute)

    @router.post("/sessions", status_code=201, responses={404: {"description": "missing"}})
    async def create_session() -> SessionShown:
        raise NotImplementedError

    (route,) = router.routes
    assert isinstance(route, APIRoute)
    schema = {"$ref": "#/components/schemas/SessionShown"}
    assert route.responses[201]["content"]["application/json"]["schema"] == schema
    assert set(route.responses) == {201, 404}


def test_no_route_validates_its_answer() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    models = {route.response_model for route in routes if isinstance(route, APIRoute)}
    assert models <= {None, Any, dict[str, Any]}
