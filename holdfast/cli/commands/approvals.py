"""Approvals: list the calls that wait for your word, allow or deny them, see what is remembered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.output import AsJson, ago, emit, emit_table
from holdfast.client.errors import ClientError

ApprovalName = Annotated[
    str, typer.Argument(metavar="ID", help="An approval: its id, or a unique prefix of it.")
]
SessionOption = Annotated[str | None, typer.Option("--session", help="Of this session only.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (approvals, approve, deny, permissions):
        app.command()(command)


def approvals(
    session: SessionOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were answered.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the calls that wait for your word, oldest first."""
    from holdfast.cli.connection import connect

    with connect() as client:
        own = None if session is None else client.session(session)["id"]
        found = client.approvals(state="all" if everything else "pending", session_id=own)
    rows = [
        (one["id"], one["state"], one["agent_path"], ago(one["asked_at"]), one["title"])
        for one in found
    ]
    columns = ("id", "state", "agent", "asked", "call")
    emit_table(found, as_json=as_json, columns=columns, rows=rows)


def approve(
    approval: ApprovalName,
    remember: Annotated[
        str | None, typer.Option(help="session or project: later calls like it are allowed too")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="which calls are like it: a glob over command or path, with --remember"),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why; kept with the answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Allow a call that waits; it is made at once."""
    _decide(approval, "allow", as_json=as_json, note=note, remember=remember, pattern=pattern)


def deny(
    approval: ApprovalName,
    note: Annotated[str | None, typer.Option(help="Why; the model reads it.")] = None,
    remember: Annotated[
        str | None, typer.Option(help="session or project: later calls like it are denied too")
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="which calls are like it")] = None,
    as_json: AsJson = False,
) -> None:
    """Deny a call that waits; the model is told so and goes on."""
    _decide(approval, "deny", as_json=as_json, note=note, remember=remember, pattern=pattern)


def permissions(
    session: SessionOption = None,
    project: Annotated[str | None, typer.Option("--project", help="Of this project.")] = None,
    forget: Annotated[
        str | None, typer.Option(help="Forget the rule with this id; `all` forgets every one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the rules that were remembered for a session or a project, or forget them."""
    from holdfast.cli.connection import connect

    if (session is None) == (project is None):
        raise typer.BadParameter("give either --session or --project")
    with connect() as client:
        holder: dict[str, Any] = {"project_id": project}
        if session is not None:
            holder = {"session_id": client.session(session)["id"]}
        if forget is None:
            found = client.permissions(**holder)
        else:
            found = client.forget_permissions(rule_id=None if forget == "all" else forget, **holder)
    rows = [
        (one["id"], one["scope"], one["effect"], one["tool"], one["pattern"] or "every call")
        for one in found["items"]
    ]
    columns = ("id", "scope", "effect", "tool", "pattern")
    emit_table(found["items"], as_json=as_json, columns=columns, rows=rows)


def _decide(name: str, decision: str, *, as_json: bool, **fields: str | None) -> None:
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.decide(_full_id(client, name), decision, **fields)
    emit(answer, as_json=as_json, text=answer["state"])


def _full_id(client: Any, name: str) -> str:
    """The id that a prefix means among those that wait; anything else is left to the server."""
    found = [one["id"] for one in client.approvals() if one["id"].startswith(name.upper())]
    if len(found) > 1:
        raise ClientError(f"{name} may be any of {', '.join(found)}")
    return found[0] if found else name
