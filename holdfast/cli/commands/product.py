"""Running the product: up, down, status, and each part alone."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.output import AsJson, emit, print_table

DOWN_GRACE_S = 30.0


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (up, down, status, worker, api):
        app.command()(command)
    app.command("terminal-host")(terminal_host)


def up() -> None:
    """Start everything in the foreground; Ctrl-C stops it.

    Prints the launch URL, the Temporal UI and the token file; the line with `ready` comes when
    the API answers. Parts that die are started again.
    """
    from holdfast.settings.environment import Settings
    from holdfast.supervisor.loop import run_supervisor

    sys.exit(run_supervisor(Settings.load()))


def down(
    keep_terminals: Annotated[
        bool, typer.Option(help="Leave the terminal host and its processes running.")
    ] = False,
) -> None:
    """Stop what `holdfast up` started in this home, from anywhere."""
    from holdfast.settings.environment import Settings
    from holdfast.supervisor import process, run_file, terminal_host

    settings = Settings.load()
    run = run_file.read(settings.run_file)
    stopped = []
    if run is not None:
        if run.is_running("supervisor"):
            process.stop(run.pids["supervisor"], run.births.get("supervisor"), grace_s=DOWN_GRACE_S)
            stopped.append("supervisor")
        for part in ("api", "worker", "temporal"):
            if run.is_running(part):
                process.stop(run.pids[part], run.births.get(part), grace_s=5.0)
                stopped.append(part)
        settings.run_file.unlink(missing_ok=True)
    pid = terminal_host.living_pid(settings.terminal_socket)
    if pid is not None and not keep_terminals:
        process.stop(pid, process.birth(pid), grace_s=5.0)
        stopped.append("terminal")
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(as_json: AsJson = False) -> None:
    """Show which parts run in this home; exit code 1 when the product is not ready."""
    from holdfast.settings.environment import Settings
    from holdfast.supervisor import readiness, run_file

    settings = Settings.load()
    run = run_file.read(settings.run_file)
    ready = run is not None and readiness.is_ready(run.api_url)
    parts = {part: run.is_running(part) for part in run.pids} if run else {}
    answer: dict[str, Any] = {
        "home": str(settings.home),
        "ready": ready,
        "pids": run.pids if run else {},
        "running": parts,
        "api_url": run.api_url if run else None,
        "temporal_address": run.temporal_address if run else None,
        "temporal_ui_url": run.temporal_ui_url if run else None,
    }
    if as_json or run is None:
        emit(answer, as_json=as_json, text=f"not up in {settings.home}")
    else:
        rows = [(part, str(run.pids[part]), "runs" if parts[part] else "gone") for part in parts]
        print_table(("part", "pid", "state"), rows)
        typer.echo(f"{'ready' if ready else 'not ready'} at {run.api_url}")
        typer.echo(f"Temporal UI: {run.temporal_ui_url or 'of ' + run.temporal_address}")
        typer.echo(f"Home: {settings.home} (config.toml, logs, database)")
    if not ready:
        raise typer.Exit(EXIT_FAILED)


def worker(
    with_terminal_host: Annotated[
        bool, typer.Option("--with-terminal-host", help="Keep a terminal host beside it.")
    ] = False,
) -> None:
    """Run one worker alone, in the foreground."""
    _run("worker", with_terminal_host=with_terminal_host)


def api() -> None:
    """Run the API alone, in the foreground."""
    _run("api")


def terminal_host() -> None:
    """Run the terminal host alone, in the foreground."""
    _run("terminal-host")


def _run(part: str, *, with_terminal_host: bool = False) -> None:
    from holdfast.cli.part import run_part

    sys.exit(run_part(part, with_terminal_host=with_terminal_host))
