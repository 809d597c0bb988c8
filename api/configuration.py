"""What the operator configured, and refusals of models that no provider there has."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.errors import ValidationFailed
from holdfast.settings.config import Config
from holdfast.settings.fresh_config import FreshConfig


class Configuration:
    """The operator's configuration of now."""

    def __init__(self, home: Path) -> None:
        self._fresh = FreshConfig(home)

    @property
    def current(self) -> Config:
        """The configuration."""
        return self._fresh()

    def check_model(self, name: str) -> None:
        """Refuse a model override whose provider is not configured."""
        provider, separator, model = name.partition(":")
        if not separator or not provider or not model:
            raise ValidationFailed('a model override has the form "provider:model"')
        self._check_provider(provider)

    def check_alias_or_model(self, name: str) -> None:
        """Refuse a model of a project file that is neither an alias nor `provider:model`."""
        config = self.current
        if name in config.aliases:
            return
        provider, separator, model = name.partition(":")
        if not separator or not model:
            known = ", ".join(sorted(config.aliases)) or "none"
            raise ValidationFailed(f'no model alias "{name[:80]}"; there are: {known}')
        self._check_provider(provider)

    def _check_provider(self, provider: str) -> None:
        known = self.current.providers
        if provider not in known:
            names = ", ".join(sorted(known))
            raise ValidationFailed(
                f'no provider "{provider[:80]}" is configured; there are: {names}'
            )
