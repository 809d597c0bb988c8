"""Every environment variable Holdfast reads, and every path that follows from them."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path
from urllib.parse import unquote

from platformdirs import user_data_path
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from holdfast.settings.secret_files import secrets_of_files
from holdfast.settings.temporal_variables import external_service

DEFAULT_TEMPORAL_ADDRESS = "127.0.0.1:7233"
POLLERS_AT_REST = 5
SOCKET_PATH_BYTES_MAX = 100  # sun_path holds 107 bytes; the host may append a suffix of its own


class SettingsError(Exception):
    """The environment or config.toml cannot be used; the message says what to change."""


class Settings(BaseSettings):
    """What one process of Holdfast needs to know about where it runs.

    Optional variables are filled in, so readers never meet an empty address or path.
    """

    model_config = SettingsConfigDict(
        env_prefix="HOLDFAST_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    home: Path = Field(default_factory=lambda: user_data_path("holdfast"))
    bind: str = "127.0.0.1:8420"
    database_url: str = ""
    # Past a pooler: for LISTEN and migrations. Empty: where everything else goes.
    database_listen_url: str = ""
    # The most connections of one process, without the one that listens.
    database_pool_size: int = Field(default=10, ge=2, le=500)
    database_statement_timeout_s: int = Field(default=120, ge=1, le=86_400)
    # Empty: in the home.
    blobs_url: str = ""
    temporal_address: str = ""
    temporal_namespace: str = "default"
    task_queue: str = "holdfast"
    # Names this build to Temporal's worker deployment versioning; empty: unversioned.
    build_id: str = Field(default="", max_length=128, pattern=r"^[A-Za-z0-9._+-]*$")
    # host:port where a worker serves /healthz and /metrics; empty: nowhere.
    metrics_bind: str = ""
    terminal_socket: Path = Path()
    # How people call this machine; empty: as it calls itself.
    host_name: str = Field(default="", max_length=200)
    # What others dial to reach the terminal host of this machine.
    host_address: str = Field(default="", max_length=255)
    # Where the terminal host of this machine listens for others by TLS; empty: nowhere.
    host_listen: str = ""
    # The folder of this machine's certificate, made by `holdfast fleet join`.
    fleet_dir: Path = Path()
    # How long a worker that is told to stop lets its steps end by themselves.
    drain_s: float = Field(default=30.0, ge=0, le=86_400)
    # So many polls of the shared queue a worker may grow to under load; 0: five, always.
    pollers_max: int = Field(default=0, ge=0, le=100)
    # For the command line as a client of a server elsewhere.
    url: str = ""
    token: str = Field(default="", repr=False)
    # Set by the supervisor for its parts: False when HOLDFAST_TEMPORAL_ADDRESS came from outside.
    temporal_embedded: bool = False
    # Set by the supervisor for the API, which shows the embedded server's UI to administrators.
    temporal_ui_address: str = ""

    @field_validator("home", "terminal_socket", "fleet_dir")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        return _absolute(path)

    @field_validator("bind", "metrics_bind")
    @classmethod
    def _has_a_port(cls, bind: str, info: ValidationInfo) -> str:
        if not bind and info.field_name == "metrics_bind":
            return bind
        host, separator, port = bind.rpartition(":")
        if not separator or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("must be host:port, for example 127.0.0.1:8420")
        return bind

    @field_validator("pollers_max")
    @classmethod
    def _is_more_than_at_rest(cls, count: int) -> int:
        if 0 < count < POLLERS_AT_REST:
            raise ValueError(f"must be 0, or {POLLERS_AT_REST} to 100")
        return count

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: dict[str, object]) -> dict[str, object]:
        home = _absolute(Path(str(values.get("home") or user_data_path("holdfast"))))
        filled = secrets_of_files(os.environ) | {
            name: value for name, value in values.items() if value
        }
        if not filled.get("database_url"):
            filled["database_url"] = f"sqlite:///{home / 'holdfast.sqlite'}"
        service = external_service()
        if not values.get("temporal_namespace") and service.get("namespace"):
            filled["temporal_namespace"] = service["namespace"]
        if not values.get("temporal_address") and service.get("address"):
            filled["temporal_address"] = service["address"]
        elif not values.get("temporal_address"):
            filled["temporal_address"] = _running_temporal(home) or DEFAULT_TEMPORAL_ADDRESS
            filled.setdefault("temporal_embedded", True)
        if not values.get("fleet_dir"):
            filled["fleet_dir"] = home / "fleet"
        if not values.get("host_name"):
            filled["host_name"] = socket.gethostname()
        if not values.get("terminal_socket"):
            filled["terminal_socket"] = _terminal_socket(home)
        return filled

    @classmethod
    def load(cls) -> Settings:
        """The settings of this process, or SettingsError naming the variable that is wrong."""
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError(_explain(error)) from error

    @property
    def bind_host(self) -> str:
        """The host part of `bind`, without the brackets of an IPv6 address."""
        return self.bind.rpartition(":")[0].strip("[]")

    @property
    def bind_port(self) -> int:
        """The port part of `bind`."""
        return int(self.bind.rpartition(":")[2])

    @property
    def bind_is_loopback(self) -> bool:
        """Whether only this machine can reach the API."""
        host = self.bind_host
        return host in {"localhost", "::1"} or host.startswith("127.")

    @property
    def api_url(self) -> str:
        """Where a client on this machine reaches the API."""
        host = self.bind_host
        if host in {"0.0.0.0", "::"}:
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        return (
            f"http://[{host}]:{self.bind_port}"
            if ":" in host
            else f"http://{host}:{self.bind_port}"
        )

    @property
    def logs_dir(self) -> Path:
        """One rotated log file per part."""
        return self.home / "logs"

    @property
    def run_file(self) -> Path:
        """run.json: pids and addresses while the product is up."""
        return self.home / "run.json"

    @property
    def token_file(self) -> Path:
        """The bearer token of the default operator."""
        return self.home / "token"

    @property
    def temporal_file(self) -> Path:
        """The embedded Temporal server's database."""
        return self.home / "temporal.db"

    @property
    def terminal_state_dir(self) -> Path:
        """Transcripts and exit codes kept by the terminal host."""
        return self.home / "terminal"

    @property
    def hidden_places(self) -> list[Path]:
        """Real paths of all that holds content, keys or sockets, wherever it was put."""
        stores = [
            Path(unquote(url.removeprefix(scheme)))
            for url, scheme in ((self.database_url, "sqlite:///"), (self.blobs_url, "file://"))
            if url.startswith(scheme)
        ]
        beside = [
            path.with_name(path.name + suffix) for path in stores for suffix in ("-wal", "-shm")
        ]
        found = [self.home, *stores, *beside, self.terminal_socket]
        return list(dict.fromkeys(path.resolve() for path in found))

    @property
    def shadow_git_dir(self) -> Path:
        """Work-tree snapshots taken at checkpoints."""
        return self.home / "snapshots"

    def child_environment(self) -> dict[str, str]:
        """The variables that make a child process see exactly these settings."""
        return {
            "HOLDFAST_HOME": str(self.home),
            "HOLDFAST_BIND": self.bind,
            "HOLDFAST_DATABASE_URL": self.database_url,
            "HOLDFAST_DATABASE_LISTEN_URL": self.database_listen_url,
            "HOLDFAST_DATABASE_POOL_SIZE": str(self.database_pool_size),
            "HOLDFAST_DATABASE_STATEMENT_TIMEOUT_S": str(self.database_statement_timeout_s),
            "HOLDFAST_BLOBS_URL": self.blobs_url,
            "HOLDFAST_TEMPORAL_ADDRESS": self.temporal_address,
            "HOLDFAST_TEMPORAL_NAMESPACE": self.temporal_namespace,
            "HOLDFAST_TASK_QUEUE": self.task_queue,
            "HOLDFAST_BUILD_ID": self.build_id,
            "HOLDFAST_METRICS_BIND": self.metrics_bind,
            "HOLDFAST_TERMINAL_SOCKET": str(self.terminal_socket),
            "HOLDFAST_HOST_NAME": self.host_name,
            "HOLDFAST_HOST_ADDRESS": self.host_address,
            "HOLDFAST_HOST_LISTEN": self.host_listen,
            "HOLDFAST_FLEET_DIR": str(self.fleet_dir),
            "HOLDFAST_DRAIN_S": str(self.drain_s),
            "HOLDFAST_POLLERS_MAX": str(self.pollers_max),
            "HOLDFAST_TEMPORAL_EMBEDDED": "true" if self.temporal_embedded else "false",
            "HOLDFAST_TEMPORAL_UI_ADDRESS": self.temporal_ui_address,
        }

    def make_home(self) -> None:
        """Create the home and its folders, readable by their owner only."""
        for folder in (self.home, self.logs_dir, self.terminal_state_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _absolute(path: Path) -> Path:
    # Not resolve(): a home behind a symlink keeps the name its owner gave it.
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100


def _running_temporal(home: Path) -> str | None:
    """The address of the server that is up in this home, so a part run by hand finds it."""
    try:
        run = json.loads((home / "run.json").read_text(encoding="utf-8"))
        address = run["temporal_address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) else None


def _terminal_socket(home: Path) -> Path:
    """The socket in the home, or a short path keyed by the home where the kernel would refuse."""
    wanted = home / "terminal.sock"
    if len(os.fsencode(wanted)) <= SOCKET_PATH_BYTES_MAX:
        return wanted
    name = f"holdfast-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(os.fsencode(short := Path(runtime) / "holdfast" / name)) <= (
        SOCKET_PATH_BYTES_MAX
    ):
        return short
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}" / name


def _explain(error: ValidationError) -> str:
    parts = []
    for problem in error.errors():
        words = problem["msg"].removeprefix("Value error, ")
        name = "_".join(str(step) for step in problem["loc"]).upper()
        parts.append(f"HOLDFAST_{name}: {words}" if name else words)
    return "; ".join(parts)
