"""Which variables each part of the product starts with."""

from __future__ import annotations

import pytest

from holdfast.memory.embedders.choosing import ADDRESSES
from holdfast.settings.config import Config
from holdfast.settings.part_environments import EMBEDDING_DRIVERS, environment_of

CONFIG = Config.model_validate(
    {
        "providers": {
            "talks": {"driver": "anthropic", "api_key_env": "TALK"},
            "embeds": {"driver": "openai", "api_key_env": "EMBED"},
        }
    }
)
KEYS = {"TALK", "EMBED", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"}
SECRETS = KEYS | {"HOLDFAST_DATABASE_URL", "HOLDFAST_TOKEN", "GITHUB_TOKEN"}
OURS = dict.fromkeys(SECRETS | {"PATH", "HOLDFAST_HOME", "LC_ALL"}, "value")


@pytest.mark.parametrize(
    ("part", "secrets"),
    [
        ("terminal", set()),
        ("temporal", set()),
        ("api", {"EMBED", "HOLDFAST_DATABASE_URL", "GITHUB_TOKEN"}),
        ("worker", SECRETS - {"HOLDFAST_TOKEN"}),
    ],
)
def test_a_part_starts_with_the_secrets_that_it_uses(part: str, secrets: set[str]) -> None:
    given = environment_of(part, OURS, CONFIG)
    assert SECRETS & given.keys() == secrets
    assert {"PATH", "HOLDFAST_HOME", "LC_ALL"} <= given.keys()


def test_the_drivers_that_embed_are_those_that_memory_knows() -> None:
    assert set(EMBEDDING_DRIVERS) == set(ADDRESSES)
