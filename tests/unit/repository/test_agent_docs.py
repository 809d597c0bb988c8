"""The pages about providers and tools say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.agent.conversation import INTERRUPTED, Turn
from holdfast.agent.errors import UNREACHABLE
from holdfast.agent.script import next_step, script_in
from holdfast.agent.tools.specs import ALL, SHELL
from holdfast.settings.config import parse_config

DOCS = Path(__file__).parents[3] / "docs"
PROVIDERS = (DOCS / "providers.md").read_text()
TOOLS = (DOCS / "tools.md").read_text()


def block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_example_configuration_is_valid() -> None:
    config = parse_config(block(PROVIDERS, "toml").encode(), DOCS / "providers.md")
    assert {provider.driver for provider in config.providers.values()} == {
        "openai",
        "anthropic",
        "google",
        "ollama",
        "scripted",
    }


def test_every_element_of_the_example_script_can_be_played() -> None:
    script = block(PROVIDERS, "json")
    elements = script_in(script) or []
    assert len(elements) == 10
    for played in range(len(elements)):
        turns = [Turn("user", script), *[Turn("assistant", "x")] * played]
        assert next_step(turns) is not None


def test_the_words_of_the_pages_are_those_of_the_code() -> None:
    assert UNREACHABLE in PROVIDERS
    assert INTERRUPTED in TOOLS


def test_the_page_tells_the_times_of_the_shell() -> None:
    most = SHELL.parameters["properties"]["timeout_s"]["maximum"]
    told = f"ends after {SHELL.default_timeout_s:g} s, or `timeout_s` (at most {most:g})"
    assert told in TOOLS


def test_the_table_of_tools_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", TOOLS, re.MULTILINE)
    assert [name for name, _ in rows] == [spec.name for spec in ALL]
    for (_, arguments), spec in zip(rows, ALL, strict=True):
        required = spec.parameters["required"]
        properties = spec.parameters["properties"]
        assert arguments.split(", ") == [
            name if name in required else f"{name}?" for name in properties
        ]
