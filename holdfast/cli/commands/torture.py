"""`holdfast selftest`: proves on this machine that nothing acknowledged is lost."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_MISCONFIGURED

LINE_EVERY_S = 10.0


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(selftest)


def selftest(
    minutes: Annotated[
        float, typer.Option(min=0.05, max=1440, help="How long parts are killed.")
    ] = 2.0,
    seed: Annotated[str, typer.Option(help="Repeats the choices of an earlier run.")] = "",
    report: Annotated[
        Path | None,
        typer.Option(help="The report as JSON; by default holdfast-selftest-SEED.json here."),
    ] = None,
    kills: Annotated[bool, typer.Option(help="Kill parts; without, it only drives them.")] = True,
    fleet: Annotated[
        bool,
        typer.Option("--fleet", help="Three hosts, two APIs, a Postgres; the network is cut too."),
    ] = False,
) -> None:
    """Torture a product of its own in a temporary home, and check that it kept every promise.

    Several clients drive sessions, tools, terminals, checkpoints, forks, subagents and searches
    with the built-in scripted model, while random parts get SIGKILL. Your own data is not touched.
    A fleet needs Postgres' programs, and root for networks that can be cut.
    """
    from holdfast.selftest import report as reports

    chosen = seed or f"{random.SystemRandom().getrandbits(32):08x}"
    what = "fleet" if fleet else "home"
    typer.echo(
        f"holdfast selftest: seed {chosen}, {minutes:g} min, in a temporary {what}", err=True
    )
    path = report or Path(f"holdfast-selftest-{chosen.replace('/', '-')}.json")
    try:
        # Now, so that a place that cannot be written is found out before the minutes are spent.
        reports.write(path, {"verdict": "unfinished", "seed": chosen, "minutes": minutes})
    except OSError as error:
        raise typer.BadParameter(f"the report cannot be written: {error}") from None
    # Asked to stop, it takes its product with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcome, home = _outcome(chosen, minutes, kills=kills, fleet=fleet)
    reports.write(path, outcome)
    typer.echo("", err=True)
    typer.echo(reports.verdict(outcome, home=home))
    typer.echo(f"Report: {path}")
    if outcome["verdict"] != "passed":
        raise typer.Exit(EXIT_FAILED)


def _outcome(
    seed: str, minutes: float, *, kills: bool, fleet: bool
) -> tuple[dict[str, Any], str | None]:
    from holdfast.selftest.fleet.services import FleetUnavailable
    from holdfast.selftest.fleet.trial import FleetTrial
    from holdfast.selftest.trial import Trial

    say = _Progress().show
    if not fleet:
        return Trial(seed, minutes, say=say).run(kills=kills)
    try:
        return FleetTrial(seed, minutes, say=say).run(kills=kills)
    except FleetUnavailable as error:
        typer.echo(f"holdfast selftest --fleet: {error}", err=True)
        raise typer.Exit(EXIT_MISCONFIGURED) from None


class _Progress:
    """One line that is rewritten on a terminal, and a line now and then elsewhere."""

    def __init__(self) -> None:
        self._shown_at = -LINE_EVERY_S

    def show(self, line: str) -> None:
        """The line as it is now."""
        if sys.stderr.isatty():
            typer.echo(f"\r{line:<79}", nl=False, err=True)
        elif not line.startswith("[") or time.monotonic() - self._shown_at >= LINE_EVERY_S:
            self._shown_at = time.monotonic()
            typer.echo(line, err=True)
