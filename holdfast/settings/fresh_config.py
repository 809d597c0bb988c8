"""config.toml as it is now: read again when the file changed, the last good one otherwise."""

from __future__ import annotations

from pathlib import Path

from holdfast.settings.config import Config, load_config
from holdfast.settings.environment import SettingsError


class FreshConfig:
    """Call it for the configuration to use next; one stat when nothing changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        # The stamp first: what is written while we read is read again.
        self._stamp = self._written()
        self._config = load_config(home)

    def __call__(self) -> Config:
        """The configuration of now."""
        stamp = self._written()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._config = load_config(self._home)
            except SettingsError:
                # A half-written file must not break anything; the start refuses a broken one.
                return self._config
        return self._config

    def _written(self) -> tuple[int, int] | None:
        try:
            found = (self._home / "config.toml").stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size)
