"""What a supervised session needs: words that wait, a run once more, a failure that was seen."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.exit_codes import EXIT_QUEUED, EXIT_USAGE
from holdfast.cli.output import AsJson, SessionName, ago, emit, emit_table

MessageName = Annotated[str | None, typer.Argument(help="A message that waits: its id.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (waiting, retry, seen):
        app.command()(command)


def waiting(
    session: SessionName,
    message: MessageName = None,
    edit: Annotated[str | None, typer.Option(help="Give that message other words.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take that message back.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the messages that wait in a busy session; change one, or take it back."""
    from holdfast.cli.connection import connect

    if (message is None) == (remove or edit is not None) or (remove and edit is not None):
        raise typer.BadParameter("name a message together with --edit WORDS or --remove")
    with connect() as client:
        found = client.session(session)["id"]
        if message is not None and edit is not None:
            answer = client.edit_waiting(found, message, edit)
            emit(answer, as_json=as_json, text=f"{message} says now: {answer['content']}")
            return
        if message is not None:
            answer = client.withdraw_waiting(found, message)
            emit(answer, as_json=as_json, text=f"{message} is taken back")
            return
        kept = client.waiting(found)
    rows = [
        (one["id"], one["when_busy"], ago(one["created_at"]), " ".join(one["content"].split()))
        for one in kept
    ]
    emit_table(kept, as_json=as_json, columns=("id", "when busy", "sent", "message"), rows=rows)


def retry(session: SessionName, as_json: AsJson = False) -> None:
    """Run the last message again, after its run failed or was cancelled; what it said is set aside.

    What its tools did stays done. `holdfast attach` shows how it goes.
    """
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.session(session)
        last = found.get("last_run")
        if last is None:
            typer.echo("nothing ran in this session yet", err=True)
            raise typer.Exit(EXIT_USAGE)
        answer = client.retry(found["id"], last["id"])
    emit(answer, as_json=as_json, text=answer["run"]["id"])
    if answer["session"]["state"] == "queued":
        raise typer.Exit(EXIT_QUEUED)


def seen(session: SessionName, as_json: AsJson = False) -> None:
    """Say that you have seen a failed run; `holdfast ls` no longer shows it as a need."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.see(client.session(session)["id"])
    needs = answer.get("attention")
    emit(answer, as_json=as_json, text="seen" if needs is None else f"still: {needs['text']}")
