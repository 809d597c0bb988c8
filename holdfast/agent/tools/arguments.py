"""Arguments of a tool: the base of the models that check them, and their JSON Schema."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

Schema = dict[str, Any]

PROBLEMS_MAX = 10
NAME_CHARS_MAX = 80
_TYPES = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "an array",
    "model_type": "an object",
}
_PROBLEMS = {
    "missing": "is missing",
    "extra_forbidden": "is unknown; there are: {known}",
    "string_too_short": "must not be empty",
    "string_too_long": "is longer than {max_length} characters",
    "string_unicode": "holds half of a surrogate pair, which is no text",
    "literal_error": "must be one of {expected}",
    "too_short": "needs at least {min_length} items",
    "too_long": "may have at most {max_length} items",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


class Arguments(BaseModel):
    """What a tool is called with; strict: a string is no number, and a boolean no integer."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def as_meant(cls, given: Any) -> Any:
        """Some models write null for an argument that they leave out, and 2.0 for 2."""
        if not isinstance(given, dict):
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {
            name: _whole(value)
            for name, value in given.items()
            if value is not None or name not in optional
        }


def _whole(value: object) -> object:
    """An integer for a float without a fraction: JSON has one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def schema_of(model: type[Arguments]) -> Schema:
    """The model's JSON Schema in the form that every provider takes.

    No references, no null for what may be left out, and no titles or defaults.
    """
    whole = model.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


def _plain(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        (given,) = [one for one in schema["anyOf"] if one != {"type": "null"}]
        schema = {**given, **{key: one for key, one in schema.items() if key != "anyOf"}}
    if schema["type"] == "object":
        properties = {name: _plain(one, definitions) for name, one in schema["properties"].items()}
        return {
            "type": "object",
            "properties": properties,
            "required": schema.get("required", []),
            "additionalProperties": False,
        }
    plain = {key: one for key, one in schema.items() if key not in ("title", "default")}
    if "items" in plain:
        plain["items"] = _plain(plain["items"], definitions)
    return plain


def explained(error: ValidationError, schema: Schema) -> str:
    """Which arguments are wrong and why, for the model to read; the first ten problems."""
    found = error.errors(include_url=False)[:PROBLEMS_MAX]
    return "; ".join(f"{_place(one['loc'])} {_problem(one, schema)}" for one in found)


def _problem(error: Any, schema: Schema) -> str:
    kind = error["type"]
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, not {type(error['input']).__name__}"
    if kind not in _PROBLEMS:
        return f"is wrong: {error['msg']}"
    facts = {name: _fact(value) for name, value in error.get("ctx", {}).items()}
    if kind == "extra_forbidden":
        facts["known"] = ", ".join(_at(schema, error["loc"][:-1])["properties"])
    return _PROBLEMS[kind].format(**facts)


def _fact(value: object) -> object:
    """A bound as a person writes it: 3600 for 3600.0, and `a, b` for `'a' or 'b'`."""
    if isinstance(value, str):
        return value.replace("'", "").replace(" or ", ", ")
    return _whole(value)


def _place(path: tuple[int | str, ...]) -> str:
    """Where a problem is, as `ops[0].op`."""
    place = ""
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{str(part)[:NAME_CHARS_MAX]}"
    return place.removeprefix(".") or "the arguments"


def _at(schema: Schema, path: tuple[int | str, ...]) -> Schema:
    for part in path:
        schema = schema["items"] if isinstance(part, int) else schema["properties"][part]
    return schema
