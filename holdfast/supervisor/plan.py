"""Which parts a home needs, with their commands: worked out before anything is started."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from holdfast.domain.wire import TEMPORAL_UI_PATH
from holdfast.folders import hidden
from holdfast.settings.config import Config, load_config
from holdfast.settings.environment import Settings, SettingsError
from holdfast.settings.part_environments import environment_of
from holdfast.supervisor import ports, temporal
from holdfast.supervisor.part import Part

# What is stopped here goes on when it is started again; whoever types Ctrl-C should not wait.
DRAIN_MAX_S = 5.0


@dataclass
class Plan:
    """The settings the parts will see, and the parts, in the order they are started."""

    settings: Settings
    parts: dict[str, Part]
    terminal: Part
    temporal_ui_url: str | None
    claimed: ports.Ports


def make_plan(settings: Settings) -> Plan:
    """Choose ports and commands; refuse an API address that somebody else uses."""
    ui_url = None
    claimed = ports.Ports()
    parts: dict[str, Part] = {}
    settings = _with_a_port(settings)
    if settings.temporal_embedded:
        port = claimed.claim(temporal.USUAL_PORT)
        ui_port = claimed.claim(temporal.USUAL_UI_PORT)
        ui_address = f"{temporal.unguessable_loopback(ui_port)}:{ui_port}"
        addresses = {
            "temporal_address": f"127.0.0.1:{port}",
            "temporal_ui_address": ui_address,
        }
        settings = settings.model_copy(update=addresses)
        command = temporal.server_command(settings, port, ui_address)
        parts["temporal"] = _part(settings, "temporal", command)
        parts["temporal"].umask = 0o077
        ui_url = f"{settings.api_url}{TEMPORAL_UI_PATH}/"
    parts["api"] = _part(settings, "api", _python("holdfast.cli.part", "api"))
    parts["worker"] = _part(settings, "worker", _python("holdfast.cli.part", "worker"))
    parts["worker"].environment["HOLDFAST_DRAIN_S"] = str(min(settings.drain_s, DRAIN_MAX_S))
    return Plan(settings, parts, terminal_part(settings), ui_url, claimed)


def terminal_part(settings: Settings) -> Part:
    """The terminal host of this machine."""
    where = [str(settings.terminal_socket), str(settings.terminal_state_dir)]
    return _part(settings, "terminal", [*_python("holdfast.terminal.main"), *where])


def _with_a_port(settings: Settings) -> Settings:
    if settings.bind_port == 0:
        host = settings.bind.rpartition(":")[0]
        return settings.model_copy(update={"bind": f"{host}:{ports.free_port()}"})
    if not ports.is_free(settings.bind_host, settings.bind_port):
        raise SettingsError(
            f"port {settings.bind_port} on {settings.bind_host} is in use by another program; "
            f"stop it, or set HOLDFAST_BIND to another address (now {settings.bind})"
        )
    return settings


def _python(*words: str) -> list[str]:
    # -P: a folder named like one of our packages, where `holdfast up` was typed, is not ours.
    return [sys.executable, "-P", "-m", *words]


def _part(settings: Settings, name: str, command: list[str]) -> Part:
    own = {**settings.child_environment(), "HOLDFAST_SUPERVISED": "1"}
    # Every part may start a terminal host when it needs one and there is none.
    own.update(_config(settings).cages.to_environment())
    # Compiled once, a part starts in half the time, and a restart is when time matters.
    own["PYTHONDONTWRITEBYTECODE"] = ""
    own[hidden.VARIABLE] = hidden.as_variable(settings.hidden_places)
    environment = environment_of(name, {**os.environ, **own}, _config(settings))
    return Part(name, command, environment, settings.logs_dir / f"{name}.log", settings.home)


def _config(settings: Settings) -> Config:
    try:
        return load_config(settings.home)
    except SettingsError:
        return Config()  # the parts that need it say what is wrong with it
