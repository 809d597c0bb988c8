"""Asks whether what a project file loosens is wanted, before sessions run with it."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from holdfast.cli.output import clean


def settle(client: Any, project: Any, *, yes: bool = False) -> Any:
    """The project, trusted if its operator says so; without a terminal only words, no question."""
    if project["trust"]["state"] != "pending":
        return project
    typer.echo(description(project), err=True)
    if not yes and not _is_interactive():
        typer.echo(
            f"None of it is in force. To put it in force: holdfast trust {project['id']}", err=True
        )
        return project
    # How many there are, in case the first of them have left the screen.
    many = len(project["trust"]["details"])
    question = f"Trust this file and put it in force ({many} of its values are listed above)?"
    if not yes and not typer.confirm(question, err=True):
        typer.echo("Not trusted: sessions run without it.", err=True)
        return project
    return client.trust_project(project["id"], project["trust"]["dsl_hash"])


def description(project: Any) -> str:
    """What the file loosens, value by value and whole."""
    lines = [f"The project file of {clean(project['path'])} allows more than was trusted before:"]
    for one in project["trust"]["details"]:
        lines.append(f"  {clean(one['key'])}")
        lines.append(f"    trusted: {_shown(one['trusted'])}")
        lines.append(f"    wanted:  {_shown(one['wanted'])}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    # As JSON, with every control character escaped, so that no value can draw over another.
    return clean(json.dumps(value, ensure_ascii=True))


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
