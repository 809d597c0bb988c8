"""Who embeds: what the project says, else what config.toml says, else whoever is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from holdfast.domain.memory import MemorySettings
from holdfast.memory.embedders.deadline import DeadlineEmbedder
from holdfast.memory.embedders.embedding import NO_PROVIDER, Embedder, EmbeddingFailed
from holdfast.memory.embedders.fallback import FallbackEmbedder

AUTO, LOCAL = "auto", "local"
# Drivers whose servers speak OpenAI's /embeddings, and where they are unless somebody says.
ADDRESSES = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434/v1"}


class ConfiguredMemory(Protocol):
    """The part of `[memory]` in config.toml that is needed here."""

    @property
    def directory(self) -> str | None:
        """Where indexes lie; None: below the home."""

    @property
    def embedding(self) -> str:
        """Who embeds unless a project says."""

    @property
    def allow_paths(self) -> list[str]:
        """What projects may read outside of their folders."""


class ConfiguredProvider(Protocol):
    """The part of a `[providers.<name>]` that is needed here."""

    @property
    def driver(self) -> str:
        """What its server speaks."""

    @property
    def base_url(self) -> str | None:
        """Where it is."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with every request, besides the key."""

    def key(self) -> str | None:
        """The API key."""


class Configured(Protocol):
    """The part of config.toml that is needed here; `holdfast.settings.config.Config` is one."""

    @property
    def memory(self) -> ConfiguredMemory:
        """`[memory]`."""

    @property
    def providers(self) -> Mapping[str, ConfiguredProvider]:
        """`[providers]`."""


class PatientFallback(FallbackEmbedder):
    """Falls back at once only from what will not pass; from the rest when nobody is patient."""

    patient = False

    def fall_back(self, error: EmbeddingFailed) -> bool:
        """As its parent does, unless the same call may well succeed at the next attempt."""
        return not (self.patient and error.passing) and super().fall_back(error)


@dataclass(frozen=True)
class Chosen:
    """Who embeds, None for words alone, and what the operator should know about the choice."""

    embedder: PatientFallback | None = None
    made: tuple[DeadlineEmbedder, ...] = ()
    notes: tuple[str, ...] = ()

    def warnings(self) -> list[str]:
        """What is wrong with the choice, and what went wrong last."""
        return [*self.notes, *(f"no embeddings: {one.trouble}" for one in self.made if one.trouble)]

    def close(self) -> None:
        """Close connections."""
        for one in self.made:
            one.close()


class NotUsable(Exception):
    """Such an embedder cannot be made; the words say why."""


def choose(
    settings: MemorySettings, config: Configured, *, within_s: float | None = None
) -> Chosen:
    """The embedder of a project, with the one to fall back on. A wrong name is only a warning.

    `within_s` is for who waits for an answer: an embedder that takes longer has failed.
    """
    notes: list[str] = []
    names = (settings.embedding or config.memory.embedding, settings.fallback or NO_PROVIDER)
    wanted, other = (_made(name, config, notes, within_s) for name in names)
    made = tuple(one for one in (wanted, other) if one is not None)
    if not made:
        return Chosen(notes=tuple(notes))
    return Chosen(PatientFallback(wanted or other, other), made, tuple(notes))


def _made(
    name: str, config: Configured, notes: list[str], within_s: float | None
) -> DeadlineEmbedder | None:
    try:
        found = embedder_of(name, config)
    except NotUsable as problem:
        notes.append(f"embedding {name[:80]!r} is not used: {problem}")
        return None
    return None if found is None else DeadlineEmbedder(found, within_s=within_s)


def embedder_of(name: str, config: Configured) -> Embedder | None:
    """The embedder of this name; None where only words are wanted or nothing is installed."""
    if name == NO_PROVIDER:
        return None
    if name in (AUTO, LOCAL):
        if (found := _local()) is None and name == LOCAL:
            raise NotUsable("the packages of the extra `embeddings` are not installed")
        return found
    provider_name, separator, model = name.partition(":")
    provider = config.providers.get(provider_name)
    if not separator or not model:
        raise NotUsable('it must be "none", "local" or "provider:model"')
    if provider is None:
        known = ", ".join(sorted(config.providers))
        raise NotUsable(f"no provider {provider_name!r} is configured; there are: {known}")
    if provider.driver not in ADDRESSES:
        raise NotUsable(f"a provider with the driver {provider.driver!r} has no embeddings here")
    address = provider.base_url or ADDRESSES[provider.driver]
    return _remote(provider_name, model, address, provider)


def _remote(name: str, model: str, address: str, provider: ConfiguredProvider) -> Embedder:
    # The HTTP client takes its time to import; the API serves before it needs it.
    import httpx2  # noqa: PLC0415

    from holdfast.memory.embedders.http import HttpEmbedder  # noqa: PLC0415

    # A transport of its own: no proxy of the environment stands before a server on this machine.
    transport = httpx2.HTTPTransport() if _is_loopback(address) else None
    return HttpEmbedder(
        name, model, address,
        api_key=provider.key(), headers=provider.headers, transport=transport,
    )  # fmt: skip


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _local() -> Embedder | None:
    # Its model takes tens of megabytes: one is enough for all projects.
    from holdfast.memory.embedders.local import LocalEmbedder, available  # noqa: PLC0415

    return LocalEmbedder() if available() else None
