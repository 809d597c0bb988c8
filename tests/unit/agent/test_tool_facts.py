"""The facts of every tool: each is written once, and none contradicts another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.tools.specs import ALL
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.tools import ToolKind
from scripts.sources import parse

ROOT = Path(__file__).parents[3]
# It drives the product from outside, with the names of the wire.
OUTSIDE = ROOT / "holdfast" / "selftest"
SOURCES = ("holdfast", "activities", "api", "workflows", "worker")
# The keywords of JSON Schema that OpenAI, Anthropic and Google all take.
PLAIN = {"type", "description", "enum", "items", "properties", "required", "additionalProperties"}
BOUNDS = {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum"}
every_tool = pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)


@every_tool
def test_the_facts_of_a_tool_agree(spec: ToolSpec) -> None:
    if spec.read_only:
        assert spec.kind is ToolKind.READ
        assert spec.repeat_safe
        assert spec.parallel
    if spec.changes_files:
        assert not spec.parallel
    assert spec.needs_issue == spec.root_only
    assert (spec.default_timeout_s is not None) == ("timeout_s" in spec.arguments.model_fields)


def test_the_kinds_are_those_that_permissions_are_given_by() -> None:
    kinds = {spec.name: str(spec.kind) for spec in ALL}
    assert kinds == {
        "shell": "execute",
        "read_file": "read",
        "write_file": "edit",
        "edit_file": "edit",
        "list_files": "read",
        "grep": "read",
        "checkpoint": "other",
        "todo": "other",
        "issue": "other",
        "subagent": "other",
        "session_search": "read",
        "memory_search": "read",
    }
    assert {str(kind) for kind in ToolKind} == {"read", "edit", "execute", "fetch", "other"}


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for inner in [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]:
        yield from schemas(inner)


@every_tool
def test_a_schema_has_only_what_every_provider_takes(spec: ToolSpec) -> None:
    for schema in schemas(spec.parameters):
        assert set(schema) <= PLAIN | BOUNDS | {"exclusiveMinimum"}
        assert isinstance(schema["type"], str)
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
        elif schema is not spec.parameters:
            assert schema["description"]


@every_tool
def test_the_default_that_the_model_is_told_is_the_one_in_use(spec: ToolSpec) -> None:
    for name, told in spec.parameters["properties"].items():
        number = re.search(r"\(default (\d+)\)", told["description"])
        if number is not None:
            default = spec.arguments.model_fields[name].default
            used = spec.default_timeout_s if name == "timeout_s" else default
            assert float(number[1]) == used


def test_the_name_of_a_tool_is_written_only_where_it_is_specified() -> None:
    # The other names are words of other things too: a checkpoint, an issue, a shell.
    names = {spec.name for spec in ALL if "_" in spec.name} | {"todo"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if OUTSIDE not in path.parents
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    places = {place.split(":")[0] for place in found}
    assert places == {"holdfast/agent/tools/specs.py", "holdfast/domain/tools.py"}
    assert len(found) == len(names)
