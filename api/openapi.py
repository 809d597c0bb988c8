"""The OpenAPI document. Answers are described by name and put in when somebody asks for it.

FastAPI would build a validator for every documented answer of every route at import; that took a
third of the API's start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

_REFERENCE = "#/components/schemas/{model}"
_described: dict[str, type[Any]] = {}


class AnswerRoute(APIRoute):
    """A route whose documented answer is its endpoint's return type, if that is a TypedDict.

    The type checker has checked the answer, so FastAPI does not validate it once more.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        answer = get_type_hints(endpoint)["return"]
        if is_typeddict(answer):
            status = options.get("status_code") or 200
            content = {"application/json": {"schema": described(answer)}}
            options["responses"] = {
                status: {"content": content},
                **(options.get("responses") or {}),
            }
            options["response_model"] = Any
        super().__init__(path, endpoint, **options)


def described(model: type[Any]) -> dict[str, Any]:
    """A reference to the model's schema, which will be in the document."""
    known = _described.setdefault(model.__name__, model)
    assert known is model, f"two answers are named {model.__name__}"
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for operations in made["paths"].values():
            for operation in operations.values():
                _tell_the_truth(operation)
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for name, schema in _schemas().items():
            schemas.setdefault(name, schema)
        app.openapi_schema = made
    return app.openapi_schema


def _schemas() -> dict[str, Any]:
    _, definitions = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(model)) for name, model in _described.items()],
        ref_template=_REFERENCE,
    )
    found: dict[str, Any] = definitions["$defs"]
    return found


def _tell_the_truth(operation: dict[str, Any]) -> None:
    """Our validation answers 400, so FastAPI's own 422 is never seen."""
    answers = operation["responses"]
    content = answers.get("422", {}).get("content", {})
    if "HTTPValidationError" in str(content):
        del answers["422"]
