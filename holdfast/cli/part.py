"""Runs one part of the product in this process: the worker, the API or the terminal host."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable

from holdfast.cli.exit_codes import EXIT_MISCONFIGURED
from holdfast.settings.config import load_config
from holdfast.settings.environment import Settings, SettingsError
from holdfast.settings.private_home import tighten

TERMINAL_LOOK_S = 2.0


def run_part(name: str, *, with_terminal_host: bool = False) -> int:
    """Run the part until it ends; trouble that no restart can mend has its own exit code."""
    try:
        settings = Settings.load()
        settings.make_home()
        if os.environ.get("HOLDFAST_SUPERVISED") != "1" and (opened := tighten(settings.home)):
            sys.stderr.write(f"{opened} files of the home were open to others; no longer\n")
        os.environ.update(load_config(settings.home).cages.to_environment())
        if with_terminal_host:
            keep_a_terminal_host(settings)
        RUNNERS[name](settings)
    except KeyboardInterrupt:
        return 130
    except _permanent() as error:
        sys.stderr.write(f"holdfast {name}: {error}\n")
        return EXIT_MISCONFIGURED
    return 0


def run_worker(settings: Settings) -> None:
    """Workflows and activities, until SIGTERM."""
    from worker.main import run

    asyncio.run(run(settings))


def keep_a_terminal_host(settings: Settings) -> None:
    """Start a terminal host whenever nobody serves the socket; a fleet has no supervisor."""
    from holdfast.supervisor.plan import terminal_part
    from holdfast.supervisor.terminal_host import living_pid

    part = terminal_part(settings)

    def watch() -> None:
        while True:
            part.ended()
            if part.child is None and living_pid(settings.terminal_socket) is None:
                part.start()
            time.sleep(TERMINAL_LOOK_S)

    threading.Thread(target=watch, daemon=True, name="terminal-host").start()


def run_api(settings: Settings) -> None:
    """HTTP, sockets and the page, until SIGTERM."""
    from holdfast.cli.credentials import prepare

    prepare(settings, with_launch=os.environ.get("HOLDFAST_SUPERVISED") == "1")
    # After the refusals, which should not wait for it.
    from api.main import run

    run(settings)


def run_terminal_host(settings: Settings) -> None:
    """Terminals and their processes, whoever comes and goes."""
    from holdfast.terminal.main import main

    settings.terminal_socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["HOLDFAST_FLEET_DIR"] = str(settings.fleet_dir)
    if code := main(settings.terminal_socket, settings.terminal_state_dir):
        sys.exit(code)


RUNNERS: dict[str, Callable[[Settings], None]] = {
    "worker": run_worker,
    "api": run_api,
    "terminal-host": run_terminal_host,
}


def _permanent() -> tuple[type[Exception], ...]:
    # Asked for only after something was raised: the terminal host never pays for this import.
    from holdfast.storage.database.trouble import StoreRefused

    return (SettingsError, StoreRefused)


if __name__ == "__main__":
    sys.exit(run_part(sys.argv[1]))
