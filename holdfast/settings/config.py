"""config.toml in the home: providers, aliases, limits, retention, terminals, cages, chats…"""

from __future__ import annotations

import contextlib
import ipaddress
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
from holdfast.domain.cages import defaults as cage_defaults
from holdfast.domain.trust import ProjectDefaults
from holdfast.settings.environment import SettingsError
from holdfast.settings.secret_files import secret_of

Driver = Literal["openai", "anthropic", "google", "ollama", "scripted"]
DEMO_PROVIDER = "scripted"
DEMO_MODEL = "scripted:demo"
CONFIG_BYTES_MAX = 1024 * 1024
OWN_BACKEND = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
UNIX_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
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
        """The API key: of the named variable, of the file that `<variable>_FILE` names, or ours."""
        name = self.api_key_env
        if name and (value := os.environ.get(name)):
            return value
        if name and (path := os.environ.get(f"{name}_FILE")):
            # Where there is no key a model call says so, and which variable it looked for.
            with contextlib.suppress(ValueError):
                return secret_of(f"{name}_FILE", path)
        return self.api_key


class Limits(Section):
    """How much may run, and what it may cost."""

    running_sessions_per_project: int = Field(default=4, ge=1, le=10_000)
    running_sessions_per_operator: int = Field(default=16, ge=1, le=100_000)
    # What one operator may keep.
    sessions_per_operator: int = Field(default=100_000, ge=1, le=100_000_000)
    projects_per_operator: int = Field(default=1_000, ge=1, le=1_000_000)
    aliases_per_operator: int = Field(default=10_000, ge=1, le=10_000_000)
    max_cost_usd: float | None = Field(default=None, gt=0)
    max_run_cost_usd: float | None = Field(default=None, gt=0)
    # Calls of one answer of a model that are made; the rest is refused in words.
    tool_calls_per_step: int = Field(default=64, ge=1, le=256)
    # Pause a session whose agent makes the same calls with the same results again and again.
    stuck_guard: bool = True


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


class Cages(Section):
    """How much any cage may use; a project file says less, or more, for its own agents."""

    memory_mb: int = Field(default=cage_defaults.MEMORY_MB, ge=16, le=2**24)
    pids: int = Field(default=cage_defaults.PIDS, ge=8, le=2**22)
    # One file, all that a process tree writes to disks, and each private folder such as /tmp.
    file_mb: int = Field(default=4096, ge=1, le=2**30)
    disk_mb: int = Field(default=32768, ge=1, le=2**40)
    tmp_mb: int = Field(default=512, ge=1, le=2**24)
    # False: never make control groups; memory and processes are watched instead.
    cgroups: bool = True

    def to_environment(self) -> dict[str, str]:
        """The variable by which a terminal host learns of these limits when it starts."""
        return {"HOLDFAST_CAGES": self.model_dump_json()}


class Server(Section):
    """How the API presents itself."""

    public_url: str | None = Field(default=None, pattern=r"^https?://")
    allowed_hosts: list[str] = Field(default_factory=list)
    allowed_origins: list[str] = Field(default_factory=list)
    # Addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are believed.
    trusted_proxies: list[str] = Field(default_factory=list, max_length=256)
    connections: int = Field(default=2_000, ge=8, le=1_000_000)
    connections_per_address: int = Field(default=500, ge=1, le=1_000_000)
    # The head of a request: its size and its time. A body has time for what comes besides.
    head_kib: int = Field(default=32, ge=4, le=1024)
    head_seconds: float = Field(default=15.0, gt=0, le=600)
    body_seconds: float = Field(default=30.0, gt=0, le=3600)
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, proxies: list[str]) -> list[str]:
        for one in proxies:
            try:
                ipaddress.ip_network(one, strict=False)
            except ValueError:
                raise ValueError(f'"{one[:80]}" is neither an address nor a network') from None
        return proxies


class Operators(Section):
    """Which user of the operating system runs the programs of an operator, on a server of root."""

    unix_user: dict[str, str] = Field(default_factory=dict, max_length=10_000)

    @field_validator("unix_user")
    @classmethod
    def _is_not_root(cls, users: dict[str, str]) -> dict[str, str]:
        for operator, user in users.items():
            if not UNIX_USER.fullmatch(user) or user == "root":
                raise ValueError(f"{user[:80]!r} cannot run the programs of {operator[:80]!r}")
        return users


class Memory(Section):
    """Where memory indexes lie, who embeds unless a project says, and what else may be read."""

    directory: str | None = Field(default=None, min_length=1, max_length=4096)
    # auto: local where its packages are installed, else none. Also: none, local, provider:model.
    embedding: str = Field(default="auto", min_length=1, max_length=200)
    # A project's extra_paths may lead out of its folder only below one of these.
    allow_paths: list[str] = Field(default_factory=list, max_length=64)


class Fleet(Section):
    """How long a session waits for its machine, and what machines give each other."""

    host_lost_after_s: int = Field(default=120, ge=5, le=86_400)
    # A snapshot of files that takes more than this stays on the machine that took it.
    snapshot_mib_max: int = Field(default=64, ge=1, le=512)


class Approvals(Section):
    """How long a call waits for an operator's word; unset: for ever."""

    expire_hours: float | None = Field(default=None, gt=0, le=24 * 3650)


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
    cages: Cages = Field(default_factory=Cages)
    operators: Operators = Field(default_factory=Operators)
    server: Server = Field(default_factory=Server)
    memory: Memory = Field(default_factory=Memory)
    chats: Chats = Field(default_factory=Chats)
    approvals: Approvals = Field(default_factory=Approvals)
    fleet: Fleet = Field(default_factory=Fleet)

    @property
    def project_defaults(self) -> ProjectDefaults:
        """What a project has whose file says nothing; more than that must be trusted."""
        return ProjectDefaults(
            running_sessions=self.limits.running_sessions_per_project,
            memory_mb=self.cages.memory_mb,
            pids=self.cages.pids,
        )

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
