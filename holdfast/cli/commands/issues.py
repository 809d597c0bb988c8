"""Issues of a project and their todos, and binding one to a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from holdfast.cli.output import AsJson, SessionName, emit, emit_table

app = typer.Typer(no_args_is_help=True)
Folder = Annotated[Path, typer.Option("--project", "-p", help="The project's folder.")]
IssueId = Annotated[str, typer.Argument(help="The issue's id.")]
BOXES = {"pending": "[ ]", "in_progress": "[/]", "done": "[x]", "abandoned": "[-]"}


@app.command("ls")
def ls(project: Folder = Path(), as_json: AsJson = False) -> None:
    """List the project's issues."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.items(f"/projects/{_project_id(client, project)}/issues")
    rows = [(f"#{one['number']}", one["id"], one["status"], one["title"]) for one in found]
    emit_table(found, as_json=as_json, columns=("no", "id", "status", "title"), rows=rows)


@app.command("new")
def new(
    title: Annotated[str, typer.Argument(help="At most 200 characters.")],
    body: Annotated[str, typer.Option(help="At most 16 KB.")] = "",
    project: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Write an issue."""
    from holdfast.cli.connection import connect

    with connect() as client:
        path = f"/projects/{_project_id(client, project)}/issues"
        made = client.post(path, {"title": title, "body": body})
    emit(made, as_json=as_json, text=f"#{made['number']}  {made['id']}")


@app.command("show")
def show(issue: IssueId, as_json: AsJson = False) -> None:
    """Show an issue with its todos."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.get(f"/issues/{quote(issue)}")
        todos = client.get(f"/issues/{quote(issue)}/todos")
    items = todos["items"] if isinstance(todos, dict) else todos
    lines = [f"#{found['number']} {found['title']} ({found['status']})", found.get("body") or ""]
    lines += [f"{BOXES.get(todo['status'], '[ ]')} {todo['text']}" for todo in items]
    emit({**found, "todos": items}, as_json=as_json, text="\n".join(lines))


@app.command("set")
def change(
    issue: IssueId,
    status: Annotated[str | None, typer.Option(help="The new status.")] = None,
    title: Annotated[str | None, typer.Option()] = None,
    body: Annotated[str | None, typer.Option()] = None,
    as_json: AsJson = False,
) -> None:
    """Change an issue's status, title or body."""
    from holdfast.cli.connection import connect

    fields = {"status": status, "title": title, "body": body}
    chosen = {key: value for key, value in fields.items() if value is not None}
    with connect() as client:
        answer = client.request("PATCH", f"/issues/{quote(issue)}", body=chosen)
    emit(answer, as_json=as_json, text=f"#{answer['number']} {answer['status']}")


@app.command("bind")
def bind(session: SessionName, issue: IssueId, as_json: AsJson = False) -> None:
    """Bind an issue to a session: its agent sees and keeps the todos."""
    from holdfast.cli.connection import connect

    with connect() as client:
        path = f"/sessions/{client.session(session)['id']}/bind"
        answer = client.request("PUT", path, body={"issue_id": issue})
    emit(answer, as_json=as_json, text="bound")


@app.command("unbind")
def unbind(session: SessionName, as_json: AsJson = False) -> None:
    """Take a session's issue away again; the todos stay with the issue."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.request("DELETE", f"/sessions/{client.session(session)['id']}/bind")
    emit(answer, as_json=as_json, text="unbound")


def _project_id(client: Any, folder: Path) -> str:
    project_id: str = client.load_project(str(folder.resolve()))["id"]
    return project_id
