"""config.toml in the home: providers, aliases, limits, retention, terminals, chats, the server."""

from __future__ import annotations

import os
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from holdfast.domain import scrollback
from holdfast.settings.environment import SettingsError

Driver = Literal["openai", "anthropic", "google", "ollama", "scripted"]
DEMO_PROVIDER = "scripted"
DEMO_MODEL = "scripted:demo"
CONFIG_BYTES_MAX = 1024 * 1024
OWN_BACKEND = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class Section(BaseModel):
    """A table of config.toml: unknown keys are mistakes, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Prices(Section):
    """What a provider charges, in US dollars per million tokens."""

    input_usd: Decimal = Field(default=Decimal(0), ge=0)
    output_usd: Decimal = Field(default=Decimal(0), ge=0)
    cache_read_usd: Decimal | None = Field(default=None, ge=0)
    cache_write_usd: Decimal | None = Field(default=None, ge=0)


class Provider(Section):
    """One source of models, named by its table: `[providers.<name>]`."""

    driver: Driver
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    api_key_env: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    # Sent with every request, for servers that want more than a key. They may hold secrets.
    headers: dict[str, str] = Field(default_factory=dict, max_length=32, repr=False)
    context_window: int | None = Field(default=None, ge=256)
    prices: Prices | None = None

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not (HEADER_NAME.fullmatch(name) and HEADER_VALUE.fullmatch(value)):
                raise ValueError(f"{name[:80]!r} is not a header that can be sent")
        return headers

    def key(self) -> str | None:
        """The API key: from the named variable first, then from the file."""
        if self.api_key_env and (value := os.environ.get(self.api_key_env)):
            return value
        return self.api_key


class Limits(Section):
    """How much may run, and what it may cost."""

    running_sessions_per_project: int = Field(default=4, ge=1, le=10_000)
    running_sessions_per_operator: int = Field(default=16, ge=1, le=100_000)
    max_cost_usd: float | None = Field(default=None, gt=0)
    max_run_cost_usd: float | None = Field(default=None, gt=0)


class Retention(Section):
    """How long output is kept for clients that were away, per session, and sessions at all."""

    frames_minutes: int = Field(default=10, ge=1)
    frames_mib: int = Field(default=50, ge=1)
    archive_after_days: int | None = Field(default=None, ge=1, le=36_500)
    prune_after_days: int | None = Field(default=None, ge=1, le=36_500)
    dry_run: bool = False


class Terminals(Section):
    """What a terminal that is opened from now on keeps in memory."""

    scrollback_lines: int = Field(
        default=scrollback.LINES_DEFAULT, ge=scrollback.LINES_MIN, le=scrollback.LINES_MAX
    )


class Server(Section):
    """How the API presents itself."""

    public_url: str | None = Field(default=None, pattern=r"^https?://")
    allowed_hosts: list[str] = Field(default_factory=list)
    allowed_origins: list[str] = Field(default_factory=list)
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Memory(Section):
    """Where memory indexes lie, who embeds unless a project says, and what else may be read."""

    directory: str | None = Field(default=None, min_length=1, max_length=4096)
    # auto: local where its packages are installed, else none. Also: none, local, provider:model.
    embedding: str = Field(default="auto", min_length=1, max_length=200)
    # A project's extra_paths may lead out of its folder only below one of these.
    allow_paths: list[str] = Field(default_factory=list, max_length=64)


class Chats(Section):
    """Which store keeps the sessions of chats, and how long the API remembers them itself."""

    # database, memory, or module:factory for one of your own.
    backend: str = Field(default="database", max_length=200)
    cache_hours: float = Field(default=24.0, gt=0, le=24 * 365)

    @field_validator("backend")
    @classmethod
    def _is_named(cls, backend: str) -> str:
        if backend not in ("database", "memory") and not OWN_BACKEND.fullmatch(backend):
            raise ValueError('must be "database", "memory" or "module:factory"')
        return backend


class Config(Section):
    """The whole of config.toml; without a provider it offers the keyless demo."""

    providers: dict[str, Provider] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)
    limits: Limits = Field(default_factory=Limits)
    retention: Retention = Field(default_factory=Retention)
    terminals: Terminals = Field(default_factory=Terminals)
    server: Server = Field(default_factory=Server)
    memory: Memory = Field(default_factory=Memory)
    chats: Chats = Field(default_factory=Chats)

    @model_validator(mode="before")
    @classmethod
    def _offer_the_demo(cls, values: dict[str, object]) -> dict[str, object]:
        providers = values.get("providers") or {}
        if not isinstance(providers, dict):
            return values
        scripted = {DEMO_PROVIDER: {"driver": "scripted"}}
        filled = {**values, "providers": {**scripted, **providers}}
        if not providers:
            aliases = values.get("aliases") or {}
            if isinstance(aliases, dict):
                filled["aliases"] = {"default": DEMO_MODEL, **aliases}
        return filled

    @model_validator(mode="after")
    def _aliases_name_providers(self) -> Config:
        for alias, target in self.aliases.items():
            provider, separator, model = target.partition(":")
            if not separator or not model:
                raise ValueError(f'aliases.{alias}: "{target}" must be "provider:model"')
            if provider not in self.providers:
                raise ValueError(f'aliases.{alias}: no provider "{provider}" is configured')
        return self


def load_config(home: Path) -> Config:
    """The configuration in `home`, or SettingsError naming the file and the key that is wrong."""
    path = home / "config.toml"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > CONFIG_BYTES_MAX:
        raise SettingsError(f"{path}: larger than 1 MiB")
    return parse_config(data, path)


def parse_config(data: bytes, path: Path) -> Config:
    """The configuration written in `data`; `path` only names it in errors."""
    try:
        values = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(error, path))) from error


def _explain(error: ValidationError, path: Path) -> list[str]:
    found = []
    for problem in error.errors():
        key = ".".join(str(step) for step in problem["loc"])
        if problem["type"] == "extra_forbidden":
            found.append(f'{path}: unknown key "{key}"')
        else:
            message = problem["msg"].removeprefix("Value error, ")
            found.append(f"{path}: {key}: {message}" if key else f"{path}: {message}")
    return found
