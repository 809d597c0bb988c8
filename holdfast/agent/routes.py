"""A route: which provider and model answer a call, found by alias or by `provider:model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.agent.errors import UnknownModel
from holdfast.settings.config import Config, Driver, Prices

MODEL_NAME_CHARS_MAX = 200


@dataclass(frozen=True)
class Route:
    """Everything a model call needs to know; hashable, so clients are kept per route."""

    provider: str
    driver: Driver
    model: str
    base_url: str | None = None
    # The key itself stays out of logs and test reports.
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None
    context_window: int | None = None
    prices: Prices | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def resolve(config: Config, name: str, override: str | None = None) -> Route:
    """The route of `override` (`provider:model`, before any alias: K-129), else of `name`."""
    if override:
        return _direct(config, override)
    return _direct(config, config.aliases.get(name, name))


def _direct(config: Config, name: str) -> Route:
    provider_name, separator, model = name.partition(":")
    if not separator:
        raise UnknownModel(_no_alias(config, name), {"model": name})
    if not model or len(name) > MODEL_NAME_CHARS_MAX:
        raise UnknownModel(f'"{name[:80]}" is not of the form "provider:model"', {"model": name})
    provider = config.providers.get(provider_name)
    if provider is None:
        known = ", ".join(sorted(config.providers))
        raise UnknownModel(
            f'No provider "{provider_name}" is configured; there are: {known}', {"model": name}
        )
    return Route(
        provider=provider_name,
        driver=provider.driver,
        model=model,
        base_url=provider.base_url,
        api_key=provider.key(),
        api_key_env=provider.api_key_env,
        context_window=provider.context_window,
        prices=provider.prices,
        headers=tuple(provider.headers.items()),
    )


def _no_alias(config: Config, name: str) -> str:
    known = ", ".join(sorted(config.aliases)) or "none"
    return (
        f'No model alias "{name[:80]}"; aliases in config.toml: {known}. '
        'Add one under [aliases], or name the model as "provider:model".'
    )


def is_loopback(base_url: str | None) -> bool:
    """Whether requests to `base_url` stay on this machine."""
    host = urlsplit(base_url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
