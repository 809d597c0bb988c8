"""Projects: load a folder, list them, check a project file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.output import AsJson, emit, emit_table

app = typer.Typer(no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The project's folder.")]


@app.command("load")
def load(path: Folder = Path(), as_json: AsJson = False) -> None:
    """Load a folder as a project, or read its project file again."""
    from holdfast.cli.connection import connect

    with connect() as client:
        project = client.load_project(str(path.resolve()))
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
