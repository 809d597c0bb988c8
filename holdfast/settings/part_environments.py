"""What each part of the product finds in its environment: secrets are where they are used.

Environments are readable in /proc by every process of the same user, for life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.folders import hidden
from holdfast.settings.config import Config

# The variables that hold a provider's key when config.toml names none, by driver.
DEFAULT_KEY_NAMES = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
# The drivers that make embeddings: a search of a memory embeds its question in the API.
EMBEDDING_DRIVERS = ("openai", "ollama")
# What a program needs to know of the machine and the user.
PLAIN_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"}
    | {"COLORTERM", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
PLAIN_PREFIXES = ("LC_", "PYTHON", "XDG_")
HOST_NAMES = frozenset(
    {"HOLDFAST_HOME", "HOLDFAST_TERMINAL_SOCKET", "HOLDFAST_TERMINAL_IDLE_S", "HOLDFAST_SUPERVISED"}
    | {hidden.VARIABLE, "HOLDFAST_CAGES", "HOLDFAST_HOST_NAME", "HOLDFAST_HOST_LISTEN"}
    | {"HOLDFAST_FLEET_DIR"}
)
CLIENT_NAMES = frozenset({"HOLDFAST_TOKEN", "HOLDFAST_URL"})


def environment_of(part: str, ours: Mapping[str, str], config: Config) -> dict[str, str]:
    """The environment of `worker`, `api`, `terminal` or `temporal`."""
    if part in ("terminal", "temporal"):
        return machine_environment(ours)
    withheld = CLIENT_NAMES | (key_names(config) - _embedding_keys(config, part))
    return {name: value for name, value in ours.items() if name not in withheld}


def machine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What is left for parts that hold no secret: the machine, the user and where the home is.

    A variable that a cage lets in comes with the request to start the process.
    """
    return {
        name: value
        for name, value in ours.items()
        if name in PLAIN_NAMES or name in HOST_NAMES or name.startswith(PLAIN_PREFIXES)
    }


def key_names(config: Config) -> set[str]:
    """Every variable that may hold the key of a provider."""
    named = {one.api_key_env for one in config.providers.values() if one.api_key_env}
    return named | {name for names in DEFAULT_KEY_NAMES.values() for name in names}


def given_by_name(names: Iterable[str], ours: Mapping[str, str]) -> dict[str, str]:
    """The variables that a trusted `cage.env` lets in, as far as they are set here."""
    return {name: ours[name] for name in names if name in ours}


def _embedding_keys(config: Config, part: str) -> set[str]:
    if part == "worker":
        return key_names(config)
    providers = [one for one in config.providers.values() if one.driver in EMBEDDING_DRIVERS]
    return {one.api_key_env for one in providers if one.api_key_env}
