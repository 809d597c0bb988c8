"""Projects: load a folder, list them, check a project file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.output import AsJson, emit, emit_table

app = typer.Typer(no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The project's folder.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands that stand beside the group."""
    app.command()(trust)


def trust(
    project: Annotated[
        str, typer.Argument(help="A project: its folder, its id or its name.")
    ] = ".",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a project file allows beyond what you trusted before, and put it in force."""
    from holdfast.cli.connection import connect
    from holdfast.cli.trust import settle

    with connect() as client:
        found = settle(client, _named(client, project), yes=yes)
    state = found["trust"]["state"]
    emit(found, as_json=as_json, text=f"{found['id']}  {found['name']}  {state}")
    if state != "trusted":
        raise typer.Exit(EXIT_FAILED)


@app.command("load")
def load(
    path: Folder = Path(),
    trust: Annotated[bool, typer.Option(help="Put all of its file in force, unasked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Load a folder as a project, or read its project file again."""
    from holdfast.cli.connection import connect
    from holdfast.cli.trust import settle

    with connect() as client:
        project = settle(client, client.load_project(str(path.resolve()), trust=trust))
    emit(project, as_json=as_json, text=f"{project['id']}  {project['name']}  {project['state']}")


@app.command("ls")
def ls(as_json: AsJson = False) -> None:
    """List the projects you have loaded."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.items("/projects")
    rows = [
        (
            one["id"],
            one["name"],
            one["state"],
            f"{one.get('running', 0)}/{one.get('limit', '-')}",
            one["path"],
        )
        for one in found
    ]
    columns = ("id", "name", "state", "running", "path")
    emit_table(found, as_json=as_json, columns=columns, rows=rows)


@app.command("validate")
def validate(path: Folder = Path(), as_json: AsJson = False) -> None:
    """Check `.holdfast/project.yaml`; a mistake is named with line and column."""
    from holdfast.cli.connection import connect

    with connect() as client:
        project = client.load_project(str(path.resolve()))
    valid = project["state"] == "ready"
    emit(
        {"valid": valid, "project": project},
        as_json=as_json,
        text="valid" if valid else f"invalid: {project.get('error')}",
    )
    if not valid:
        raise typer.Exit(1)


def _named(client: Any, project: str) -> Any:
    """The project in this folder, or the loaded one with this id or name."""
    found = [one for one in client.items("/projects") if project in (one["id"], one["name"])]
    if len(found) == 1 and not Path(project).is_dir():
        return client.get(f"/projects/{found[0]['id']}")
    return client.load_project(str(Path(project).resolve()))
