"""Checking a model's arguments against a tool's schema, with words that help it to do better."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.specs import Schema, ToolSpec

PROBLEMS_MAX = 10
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def problem_with(spec: ToolSpec, call: ToolCall) -> str | None:
    """Why the call's arguments do not fit, for the model to read; None when they do."""
    if call.invalid_arguments is not None:
        return f"The arguments of {spec.name} were not valid: {call.invalid_arguments}"
    problems = violations(spec.parameters, call.arguments)
    if not problems:
        return None
    return f"The arguments of {spec.name} do not fit: {'; '.join(problems)}"


def violations(schema: Schema, value: object) -> list[str]:
    """Up to ten places where `value` breaks `schema`, in order."""
    found = []
    for problem in _check(schema, value, ""):
        found.append(problem)
        if len(found) == PROBLEMS_MAX:
            break
    return found


def _check(schema: Schema, value: Any, where: str) -> Iterator[str]:
    name = where or "the arguments"
    kind = schema.get("type", "object")
    if not _is(kind, value):
        yield f"{name} must be {_article(kind)}, not {type(value).__name__}"
    elif kind == "object":
        yield from _check_object(schema, value, where)
    elif kind == "array":
        yield from _check_array(schema, value, name)
    elif kind == "string":
        yield from _check_text(schema, value, name)
    elif kind in {"integer", "number"}:
        yield from _check_number(schema, value, name)


def _check_object(schema: Schema, value: dict[str, Any], where: str) -> Iterator[str]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    for key in required:
        if key not in value:
            yield f"{_join(where, key)} is missing"
    for key, item in value.items():
        # Some models write null for an argument that they leave out.
        if item is None and key in properties and key not in required:
            continue
        if key in properties:
            yield from _check(properties[key], item, _join(where, key))
        else:
            known = ", ".join(properties)
            yield f"{_join(where, str(key)[:80])} is unknown; there are: {known}"


def _check_array(schema: Schema, value: list[Any], name: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{name} needs at least {schema['minItems']} items"
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{name} may have at most {schema['maxItems']} items"
        return
    for index, item in enumerate(value):
        yield from _check(schema.get("items", {}), item, f"{name}[{index}]")


def _check_text(schema: Schema, value: str, name: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{name} must be one of {', '.join(schema['enum'])}"
    if len(value) < schema.get("minLength", 0):
        yield f"{name} must not be empty"
    if len(value) > schema.get("maxLength", len(value)):
        yield f"{name} is longer than {schema['maxLength']} characters"


def _check_number(schema: Schema, value: float, name: str) -> Iterator[str]:
    if value < schema.get("minimum", value):
        yield f"{name} must be at least {schema['minimum']}"
    if value > schema.get("maximum", value):
        yield f"{name} must be at most {schema['maximum']}"
    if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
        yield f"{name} must be more than {schema['exclusiveMinimum']}"


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
