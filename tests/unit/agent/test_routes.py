"""Which model answers, how large its window is, and what a call costs."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from holdfast.agent.conversation import ToolCall, Turn, Usage
from holdfast.agent.errors import UnknownModel
from holdfast.agent.prices import cost_of
from holdfast.agent.routes import is_loopback, resolve
from holdfast.agent.tokens import context_size, context_window, estimate, estimate_turn
from holdfast.settings.config import Config

CONFIG = Config.model_validate(
    {
        "providers": {
            "main": {"driver": "openai", "api_key": "secret-key"},
            "claude": {"driver": "anthropic"},
            "local": {
                "driver": "ollama",
                "context_window": 32_768,
                "prices": {"input_usd": 1, "output_usd": "2.5", "cache_read_usd": "0.1"},
            },
        },
        "aliases": {"smart": "claude:claude-sonnet-4-5", "main": "local:qwen3:8b"},
    }
)


def test_an_alias_leads_to_its_provider_and_model() -> None:
    route = resolve(CONFIG, "smart")
    assert (route.provider, route.driver, route.model) == (
        "claude",
        "anthropic",
        "claude-sonnet-4-5",
    )


def test_a_model_name_may_hold_colons() -> None:
    assert resolve(CONFIG, "local:qwen3:8b").model == "qwen3:8b"


@pytest.mark.req("K-129")
def test_an_override_is_split_and_routed_before_any_alias() -> None:
    route = resolve(CONFIG, "smart", override="main:gpt-4o")
    assert (route.provider, route.model, route.api_key) == ("main", "gpt-4o", "secret-key")


@pytest.mark.req("K-129")
def test_an_override_is_never_an_alias() -> None:
    with pytest.raises(UnknownModel):
        resolve(CONFIG, "main:gpt-4o", override="smart")


@pytest.mark.parametrize("name", ["nobody", "nobody:model", "main:", "", "main:" + "x" * 300])
def test_an_unknown_model_is_refused_as_a_validation_error(name: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        resolve(CONFIG, name)
    assert (raised.value.code, raised.value.status) == ("validation_failed", 400)


def test_without_any_provider_the_demo_is_the_default() -> None:
    route = resolve(Config(), "default")
    assert (route.provider, route.model) == ("scripted", "demo")


def test_a_key_is_not_shown() -> None:
    assert "secret-key" not in repr(resolve(CONFIG, "main:gpt-4o"))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://127.0.0.1.example.com/v1", False),
        ("https://api.example.com/v1", False),
        (None, False),
    ],
)
def test_only_this_machine_is_loopback(address: str | None, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_window_comes_from_config_then_the_table_then_a_guess() -> None:
    assert context_window(resolve(CONFIG, "main"), CONFIG) == 32_768
    assert context_window(resolve(CONFIG, "main:gpt-4o"), CONFIG) == 128_000
    assert context_window(resolve(CONFIG, "main:nobody-knows-it"), CONFIG) == 8192
    assert context_window(resolve(CONFIG, "scripted:demo")) == 8192


def test_prices_of_the_config_come_first() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=500_000)
    assert cost_of(resolve(CONFIG, "main"), usage) == (Decimal("3.05"), "estimated", "config")


def test_a_known_model_is_priced_by_the_table() -> None:
    usage = Usage(input_tokens=1000, output_tokens=100)
    assert cost_of(resolve(CONFIG, "main:gpt-4o"), usage) == (
        Decimal("0.0035"),
        "estimated",
        "genai-prices",
    )


def test_nobody_knows_the_price_of_an_unknown_model() -> None:
    assert cost_of(resolve(CONFIG, "main:nobody-knows-it"), Usage(5, 5))[1] == "unknown"


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("The quick brown fox jumps over the lazy dog.", 9, 12),
        ("def add(left: int, right: int) -> int:\n    return left + right\n", 18, 26),
        ("你好，世界。今天天气很好。", 9, 15),
        ("2026-11-16T11:23:51Z ERROR worker-3 request 4f9a failed", 20, 32),
        ("A" * 1_000_000, 150_000, 300_000),
    ],
)
def test_the_estimate_is_near_the_real_count(text: str, least: int, most: int) -> None:
    assert least <= estimate(text) <= most


def test_tool_calls_count_too() -> None:
    call = ToolCall("a", "shell", {"command": "make test && make bench"})
    assert estimate_turn(Turn("assistant", "", (call,))) > estimate_turn(Turn("assistant", ""))


def test_the_context_is_what_was_reported_plus_the_tail_with_a_margin() -> None:
    tail = [Turn("user", "word " * 100)]
    assert context_size(5000, tail) > 5000 + 100
    assert context_size(None, []) == 0


def test_importing_the_agent_does_not_import_the_provider_libraries() -> None:
    program = (
        "import sys, holdfast.agent.providers, holdfast.agent.tools.files\n"
        "import holdfast.agent.prompts, holdfast.agent.compaction\n"
        "heavy = ('pydantic_ai', 'openai', 'anthropic', 'google.genai', 'temporalio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
