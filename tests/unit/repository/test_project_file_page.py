"""The page about the project file is true: its examples are valid, by our checks and the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from holdfast.domain.memory import ChunkSettings, MemorySettings, QuerySettings, SyncSettings
from holdfast.domain.project_file import (
    AgentSpec,
    CageNetwork,
    CageSettings,
    CompactionSettings,
    Limits,
    ProjectFile,
)
from holdfast.storage.projects import project_file, project_yaml

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = [
    example
    for name in ("project-file.md", "memory.md")
    for example in re.findall(r"```yaml\n(.*?)```", (DOCS / name).read_text("utf-8"), re.DOTALL)
]
MODELS = [
    *(ProjectFile, AgentSpec, Limits, CageSettings, CageNetwork, CompactionSettings),
    *(MemorySettings, SyncSettings, QuerySettings, ChunkSettings),
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_valid_for_us_and_for_the_schema(text: str, tmp_path: Path) -> None:
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / "project.yaml").write_text(text)
    loaded = project_file.load(tmp_path)
    schema = project_file.json_schema()
    Draft202012Validator.check_schema(schema)
    data = project_yaml.parse("project.yaml", text.encode()).data
    assert list(Draft202012Validator(schema).iter_errors(data)) == []
    assert list(Draft202012Validator(schema).iter_errors(loaded.content)) == []


@pytest.mark.parametrize("text", ["version: 2\nproject: ab\n", "project: ab\nnonsense: 1\n"])
def test_the_schema_refuses_what_we_refuse(text: str) -> None:
    data = project_yaml.parse("project.yaml", text.encode()).data
    assert list(Draft202012Validator(project_file.json_schema()).iter_errors(data))


@pytest.mark.parametrize("model", MODELS)
def test_the_page_shows_every_key(model: type[ProjectFile]) -> None:
    shown = set(re.findall(r"([a-z_]+):", "\n".join(EXAMPLES)))
    elsewhere = {"delegate_to", "observers"}
    assert set(model.model_fields) - shown - elsewhere == set()
