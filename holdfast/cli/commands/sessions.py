"""Sessions: list, show, make, talk to, stop and put away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_PAUSED, EXIT_QUEUED, EXIT_USAGE
from holdfast.cli.output import AsJson, SessionName, ago, dollars, emit, emit_table

# What fits on a screen (H-036); a page of the API has 50.
RECENT = 20
WAITS = "it waits until the session comes to it; `holdfast waiting` lists what waits"


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    commands: list[Callable[..., None]] = [ls, show, new, send, cancel, end, discard]
    commands += [archive, unarchive, reopen, purge, rename]
    for command in commands:
        app.command()(command)


def ls(
    state: Annotated[str | None, typer.Option(help="Only sessions in this state.")] = None,
    source: Annotated[str | None, typer.Option(help="Only sessions from this source.")] = None,
    q: Annotated[str | None, typer.Option("--query", "-q", help="Words in title or text.")] = None,
    archived: Annotated[bool, typer.Option(help="Archived ones instead.")] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="Only those that need a person.")
    ] = False,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=10_000)] = RECENT,
    as_json: AsJson = False,
) -> None:
    """List your 20 most recent sessions, newest activity first, and what they need from you."""
    from holdfast.cli import needs
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.items(
            "/sessions",
            items_max=limit,
            state=state,
            source=source,
            q=q,
            archived="true" if archived else None,
            attention="true" if attention else None,
        )
    rows = [
        (
            one["id"],
            one["state"],
            needs.cell(one),
            one.get("title") or "-",
            ago(one.get("last_active") or one.get("updated_at")),
            one.get("preview") or "",
        )
        for one in found
    ]
    columns = ("id", "state", "needs", "title", "active", "preview")
    emit_table(found, as_json=as_json, columns=columns, rows=rows)


def show(
    session: SessionName,
    messages: Annotated[bool, typer.Option(help="The conversation too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Show one session: its state, what may be done with it, and its conversation."""
    from holdfast.cli import needs
    from holdfast.cli.connection import connect
    from holdfast.cli.rendering import history_line

    with connect() as client:
        found = client.session(session)
        said = client.messages(found["id"]) if messages else []
    usage = found.get("usage") or {}
    lines = [
        f"{found['id']}  {found['state']}  {found.get('title') or ''}",
        f"may: {', '.join(found.get('allowed_actions') or []) or 'nothing'}",
        f"messages {found.get('message_count')}, tool calls {found.get('tool_call_count')}, "
        f"tokens {usage.get('input_tokens')} in / {usage.get('output_tokens')} out, "
        f"cost {dollars(usage.get('estimated_cost_usd'))}",
        *_withheld_lines(found),
        *needs.lines(found),
        "",
        *[history_line(message) for message in said],
    ]
    answer = {**found, "messages": said} if messages else found
    emit(answer, as_json=as_json, text="\n".join(lines))


def _withheld_lines(session: Any) -> list[str]:
    """What of the project file the session runs without."""
    withheld = ", ".join(session.get("withheld") or [])
    return [f"not trusted when it began, so not in force: {withheld}"] if withheld else []


def new(
    path: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    title: Annotated[str | None, typer.Option()] = None,
    model: Annotated[
        str | None, typer.Option(help="provider:model, instead of the default")
    ] = None,
    source: Annotated[str, typer.Option(help="Where the session comes from.")] = "cli",
    issue: Annotated[str | None, typer.Option(help="Bind this issue id.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a session in the project of a folder (this one by default) and print its id."""
    from holdfast.cli.connection import connect

    with connect() as client:
        made = _create(client, path, title=title, model=model, source=source, issue=issue)
    emit(made, as_json=as_json, text=made["id"])


def send(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SESSION] MESSAGE",
            help="With one argument a new session in this folder gets the message; "
            "`-` reads it from standard input.",
        ),
    ],
    model: Annotated[str | None, typer.Option(help="provider:model from now on")] = None,
    detach: Annotated[bool, typer.Option(help="Do not wait for the answer.")] = False,
    queue: Annotated[
        bool, typer.Option("--queue", help="To a busy session: wait for a run of its own.")
    ] = False,
    steer: Annotated[
        bool, typer.Option("--steer", help="To a busy session: said in the run that goes on.")
    ] = False,
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="To a busy session: its run ends, another begins.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message and stream the answer, with tool calls as they happen.

    A session that is busy refuses it, unless --queue, --steer or --interrupt says what to do.

    Exit codes: 0 done, 1 the run failed or was cancelled, 3 refused (for example busy),
    4 no server, 5 queued until a slot is free, 6 paused at a checkpoint.
    """
    from holdfast.cli.connection import connect
    from holdfast.cli.rendering import Renderer

    if len(words) > 2:
        raise typer.BadParameter("one session and one message; quote the message")
    when_busy = _when_busy(queue=queue, steer=steer, interrupt=interrupt)
    content = sys.stdin.read() if words[-1] == "-" else words[-1]
    with connect() as client:
        if len(words) == 1:
            session_id = _create(client, Path(), source="cli")["id"]
            if not as_json:
                typer.echo(f"session {session_id}", err=True)
        else:
            session_id = client.session(words[0])["id"]
        if detach:
            accepted = client.send(session_id, content, model_override=model, when_busy=when_busy)
            run = accepted["run"]
            emit(accepted, as_json=as_json, text=WAITS if run is None else run["id"])
            return
        renderer = None if as_json else Renderer()
        options = {"model_override": model, "when_busy": when_busy}
        answer = _converse(client, session_id, content, options, renderer)
    if as_json:
        emit(answer, as_json=True, text="")
    raise typer.Exit(_exit_code(answer))


def cancel(session: SessionName, as_json: AsJson = False) -> None:
    """Stop the run that is going on; what it said so far is kept."""
    from holdfast.cli.connection import connect

    with connect() as client:
        found = client.session(session)
        run = found.get("active_run")
        run_id = run["id"] if isinstance(run, dict) else run
        if not run_id:
            typer.echo("nothing runs in this session", err=True)
            raise typer.Exit(EXIT_USAGE)
        answer = client.cancel(found["id"], run_id)
    emit(answer, as_json=as_json, text=f"run {run_id} is being cancelled")


def end(session: SessionName, as_json: AsJson = False) -> None:
    """End a session."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.end(client.session(session)["id"])
    emit(answer, as_json=as_json, text="ended")


def discard(session: SessionName, as_json: AsJson = False) -> None:
    """Throw the queued message away; the session is idle again."""
    _act(session, "DELETE", "/queued-message", as_json=as_json, word="discarded")


def archive(session: SessionName, as_json: AsJson = False) -> None:
    """Hide a session from lists."""
    _act(session, "POST", "/archive", as_json=as_json, word="archived")


def unarchive(session: SessionName, as_json: AsJson = False) -> None:
    """Bring an archived session back into lists."""
    _act(session, "POST", "/unarchive", as_json=as_json, word="back")


def reopen(session: SessionName, as_json: AsJson = False) -> None:
    """Go on with a session that was ended cleanly."""
    _act(session, "POST", "/reopen", as_json=as_json, word="idle")


def purge(
    session: SessionName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a session's rows for good."""
    if not yes:
        typer.confirm(f"Remove {session} for good?", abort=True)
    _act(session, "POST", "/purge?confirm=true", as_json=as_json, word="purged")


def rename(
    session: SessionName,
    title: Annotated[str, typer.Argument(help="The new title.")],
    as_json: AsJson = False,
) -> None:
    """Give a session another title."""
    from holdfast.cli.connection import connect

    with connect() as client:
        path = f"/sessions/{client.session(session)['id']}"
        answer = client.request("PUT", path, body={"title": title})
    emit(answer, as_json=as_json, text=title)


def _act(session: str, method: str, path: str, *, as_json: bool, word: str) -> None:
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.request(method, f"/sessions/{client.session(session)['id']}{path}")
    emit(answer, as_json=as_json, text=word)


def _create(
    client: Any,
    path: Path,
    *,
    source: str,
    title: str | None = None,
    model: str | None = None,
    issue: str | None = None,
) -> Any:
    from holdfast.cli.trust import settle

    project = settle(client, client.load_project(str(path.resolve())))
    fields = {"title": title, "model_override": model, "source": source, "bound_issue": issue}
    chosen = {key: value for key, value in fields.items() if value is not None}
    return client.create(project["id"], **chosen)


def _when_busy(*, queue: bool, steer: bool, interrupt: bool) -> str | None:
    chosen = {"queue": queue, "steer": steer, "interrupt": interrupt}
    wanted = [name for name, one in chosen.items() if one]
    if len(wanted) > 1:
        raise typer.BadParameter("only one of --queue, --steer and --interrupt")
    return wanted[0] if wanted else None


def _converse(
    client: Any, session_id: str, content: str, options: dict[str, Any], renderer: Any
) -> dict[str, Any]:
    """Run one message to its end; the run, the session and the text of the answer."""
    from holdfast.cli.approving import Prompter

    accepted: dict[str, Any] = {}
    prompter = None if renderer is None else Prompter(client, renderer)
    for frame in client.ask(session_id, content, **options):
        if frame.type == "accepted":
            accepted = frame.payload
        elif renderer is not None and prompter is not None:
            renderer.show(frame)
            prompter.look_at(frame)
    if accepted["run"] is None:
        if renderer is not None:
            renderer.note(WAITS)
        return {"run": None, "session": accepted["session"], "text": ""}
    run = client.get(f"/sessions/{session_id}/runs/{accepted['run']['id']}")
    said = client.messages(session_id, since=accepted["message"]["id"])
    session = client.session(session_id)
    text = [message["content"] for message in said if message["role"] == "primary"]
    if renderer is not None:
        for message in said:
            renderer.message(message)
        _say_how_it_went(renderer, run, session)
    return {"run": run, "session": session, "text": "\n".join(str(part) for part in text)}


def _say_how_it_went(renderer: Any, run: dict[str, Any], session: dict[str, Any]) -> None:
    if run["state"] == "failed":
        renderer.note(f"the run failed: {(run.get('error') or {}).get('message')}")
    elif session["state"] == "queued":
        renderer.note("queued: too many sessions run; `holdfast resume` starts it later")
    elif session["state"] == "paused":
        renderer.note("paused at a checkpoint; `holdfast resume` goes on")


def _exit_code(answer: dict[str, Any]) -> int:
    if answer["run"] is None:
        return 0  # it waits, as was asked
    if answer["session"]["state"] == "queued":
        return EXIT_QUEUED
    if answer["session"]["state"] == "paused":
        return EXIT_PAUSED
    return 0 if answer["run"]["state"] == "done" else EXIT_FAILED
