"""Operators and their tokens; these commands read the database itself, so they work while down."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.output import AsJson, ago, emit, emit_table

app = typer.Typer(help="People who own sessions.", no_args_is_help=True)


def add_to(parent: typer.Typer) -> None:
    """Register the commands."""
    parent.command()(token)
    parent.command()(launch)
    parent.add_typer(app, name="operator")


def token(
    operator: Annotated[
        str | None, typer.Option(help="A new token for this operator, instead of `local`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a bearer token of the default operator `local`."""
    from holdfast.cli import credentials
    from holdfast.settings.environment import Settings

    settings = Settings.load()
    if operator is None:
        value = credentials.token_of_the_default_operator(settings)
    else:
        value = credentials.new_token(settings, operator)
    emit({"token": value}, as_json=as_json, text=value)


def launch(
    operator: Annotated[str, typer.Option(help="Whom the browser is signed in as.")] = "local",
    as_json: AsJson = False,
) -> None:
    """Print a new one-time URL that signs a browser in."""
    from holdfast.cli import credentials
    from holdfast.cli.connection import server_url
    from holdfast.settings.environment import Settings

    settings = Settings.load()
    secret = credentials.new_launch_token(settings, operator)
    url = f"{server_url(settings)}/launch?token={secret}"
    emit({"url": url}, as_json=as_json, text=url)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="A name of its own.")], as_json: AsJson = False
) -> None:
    """Add an operator and print the one token it can sign in with."""
    from holdfast.cli import credentials
    from holdfast.settings.environment import Settings

    operator_id, value = credentials.add_operator(Settings.load(), name)
    answer = {"id": operator_id, "name": name, "token": value}
    emit(answer, as_json=as_json, text=value)


@app.command("ls")
def ls(as_json: AsJson = False) -> None:
    """List the operators."""
    from holdfast.cli import credentials
    from holdfast.settings.environment import Settings

    found = credentials.list_operators(Settings.load())
    rows = [
        (one["name"], one["id"], "revoked" if one["disabled"] else "active", ago(one["created_at"]))
        for one in found
    ]
    emit_table(found, as_json=as_json, columns=("name", "id", "state", "added"), rows=rows)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="The operator to shut out.")]) -> None:
    """Make all tokens of an operator worthless; its sessions stay."""
    from holdfast.cli import credentials
    from holdfast.settings.environment import Settings

    count = credentials.revoke(Settings.load(), name)
    typer.echo(f"revoked {count} tokens of {name}")
