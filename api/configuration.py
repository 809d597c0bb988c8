"""config.toml as the API sees it: read again whenever it was written, the last good one kept."""

from __future__ import annotations

from pathlib import Path

from domain.errors import ValidationFailed
from settings.config import Config, load_config
from settings.environment import SettingsError


class Configuration:
    """The operator's configuration of now."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stamp = self._written()
        self._config = load_config(home)

    @property
    def current(self) -> Config:
        """The configuration; one stat when nothing changed."""
        stamp = self._written()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._config = load_config(self._home)
            except SettingsError:
                # A half-written file must not break requests; the start refuses a broken one.
                return self._config
        return self._config

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

    def _written(self) -> tuple[int, int] | None:
        try:
            found = (self._home / "config.toml").stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size)
