"""The OpenAPI document. Answers are described by name and put in when somebody asks for it.

FastAPI would build a validator for every documented answer of every route at import; that took a
third of the API's start.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REFERENCE = "#/components/schemas/{model}"
_described: dict[str, type[BaseModel]] = {}


def described(model: type[BaseModel]) -> dict[str, Any]:
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
    models = [(model, "serialization") for model in _described.values()]
    _, definitions = models_json_schema(models, ref_template=_REFERENCE)  # type: ignore[arg-type]
    found: dict[str, Any] = definitions.get("$defs", {})
    return found


def _tell_the_truth(operation: dict[str, Any]) -> None:
    """Our validation answers 400, so FastAPI's own 422 is never seen."""
    answers = operation["responses"]
    content = answers.get("422", {}).get("content", {})
    if "HTTPValidationError" in str(content):
        del answers["422"]
