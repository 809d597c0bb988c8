"""The library of sessions: search, export and import, pruning, usage."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import BadArguments
from holdfast.cli.hits import print_hits
from holdfast.cli.output import AsJson, ago, dollars, emit, emit_shown, print_table

IMPORT_BYTES_MAX = 64 * 1024 * 1024
# The last thing on each line of an export of all.
_PROGRESS = re.compile(r'"done": (\d+), "total": (\d+)\}\}$')


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (search, export, prune, retention, usage):
        app.command()(command)
    app.command("import")(import_sessions)


def search(
    words: Annotated[list[str], typer.Argument(help="Words, phrases in quotes, AND, OR, NOT.")],
    session: Annotated[str | None, typer.Option(help="Only in this session.")] = None,
    role: Annotated[str | None, typer.Option(help="Only messages of this role.")] = None,
    source: Annotated[str | None, typer.Option(help="Only sessions from this source.")] = None,
    sort: Annotated[str, typer.Option(help="relevance or recency")] = "relevance",
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    as_json: AsJson = False,
) -> None:
    """Search everything that was said in your sessions."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get(
            "/search",
            q=" ".join(words),
            session=session,
            role=role,
            source=source,
            sort=sort,
            limit=limit,
        )
    emit_shown(answer, as_json=as_json, show=print_hits)


def export(
    session: Annotated[str | None, typer.Argument(help="One session; without, all.")] = None,
    format_: Annotated[str, typer.Option("--format", help="json, md or html")] = "json",
    source: Annotated[str | None, typer.Option(help="All sessions of this source.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Into this file.")] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave out keys and passwords.")] = False,
) -> None:
    """Write one session as JSON, Markdown or HTML, or all sessions as lines of JSON."""
    from holdfast.cli.connection import connect

    with connect(timeout_s=600.0) as client:
        if session is None:
            _export_all(client.lines("/export", source=source, redact=redact), output)
            return
        path = f"/sessions/{client.session(session)['id']}/export"
        answer = client.get(path, format=format_, redact=redact)
    text = answer if isinstance(answer, str) else json.dumps(answer, indent=2, ensure_ascii=False)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text, encoding="utf-8")


def import_sessions(
    file: Annotated[
        Path, typer.Argument(help="An export (JSON or lines of JSON; `-` is stdin) or a state.db.")
    ],
    as_json: AsJson = False,
) -> None:
    """Bring in exported sessions, or those of a Hermes `state.db` on the server's machine."""
    from holdfast.cli.connection import connect

    if str(file) != "-" and _importer_of(file) == "hermes":
        with connect(timeout_s=600.0) as client:
            answer = client.post("/sessions/import", {"hermes_path": str(file.resolve())})
        here = f", {answer['skipped']} were here already" if answer["skipped"] else ""
        emit(answer, as_json=as_json, text=f"imported {answer['imported']}{here}")
        return
    answers = []
    with connect(timeout_s=600.0) as client:
        for document in _documents(file):
            answers.append(client.post("/sessions/import", document))
    imported = sum(1 for answer in answers if answer["imported"])
    known = len(answers) - imported
    here = f", {known} were here already" if known else ""
    emit(answers, as_json=as_json, text=f"imported {imported}{here}")


def prune(
    older_than_days: Annotated[int, typer.Option(min=1)] = 90,
    source: Annotated[str | None, typer.Option(help="Only sessions from this source.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove ended sessions older than so many days."""
    from holdfast.cli.connection import connect

    body = {"older_than_days": older_than_days, "dry_run": dry_run}
    if source is not None:
        body["source"] = source  # type: ignore[assignment]
    with connect(timeout_s=600.0) as client:
        answer = client.post("/sessions/prune", body)
    word = "would go" if dry_run else "removed"
    named = answer["session_ids"] if dry_run else []
    text = "\n".join([*named, f"{answer['count']} sessions {word}"])
    emit(answer, as_json=as_json, text=text)


def retention(as_json: AsJson = False) -> None:
    """Show what config.toml archives and prunes by itself: what is due, and what was done."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get("/admin/retention")
    emit_shown(answer, as_json=as_json, show=_show_retention)


def usage(as_json: AsJson = False) -> None:
    """Show tokens and cost by model and by day, and the most expensive sessions."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get("/usage")
    emit_shown(answer, as_json=as_json, show=_show_usage)


def _show_retention(answer: dict[str, Any]) -> None:
    for verb in ("archive", "prune"):
        days = answer[f"{verb}_after_days"]
        due = len(answer["due"][verb])
        typer.echo(f"{verb}: " + ("never" if days is None else f"after {days} days, {due} due"))
    if answer["dry_run"]:
        typer.echo("dry run: nothing is changed")
    rows = [
        (ago(one["at"]), str(one["archived_count"]), str(one["pruned_count"]))
        for one in answer["done"]
    ]
    if rows:
        print_table(("when", "archived", "pruned"), rows)


def _show_usage(answer: dict[str, Any]) -> None:
    for name, key in (("by_model", "model"), ("by_day", "day"), ("top_sessions", "session_id")):
        rows = [_usage_row(one, key) for one in answer.get(name) or []]
        columns = (name.replace("_", " "), "sessions", "in", "out", "cost")
        print_table(columns, rows)


def _usage_row(one: dict[str, Any], key: str) -> tuple[str, ...]:
    return (
        str(one.get("title") or one.get(key) or "-"),
        str(one.get("sessions", one.get("count", "-"))),
        str(one.get("input_tokens", "-")),
        str(one.get("output_tokens", "-")),
        dollars(one.get("actual_cost_usd") or one.get("estimated_cost_usd")),
    )


def _importer_of(file: Path) -> str | None:
    from holdfast.storage.transfer.importers.importer import Source
    from holdfast.storage.transfer.importers.table import recognise

    return recognise(Source(file))


def _export_all(lines: Iterator[str], output: Path | None) -> None:
    """Line by line, however long it is; how far it is goes to stderr."""
    with contextlib.ExitStack() as stack:
        file = (
            sys.stdout
            if output is None
            else stack.enter_context(output.open("w", encoding="utf-8"))
        )
        told = 0
        for line in lines:
            file.write(f"{line}\n")
            found = _PROGRESS.search(line[-80:])
            if found and output is not None:
                done, total = int(found[1]), int(found[2])
                if done == total or 100 * done // total >= told + 10:
                    told = 100 * done // total
                    typer.echo(f"{done} of {total} sessions", err=True)


def _documents(file: Path) -> Iterator[Any]:
    try:
        yield from _parsed(file)
    except ValueError:
        raise BadArguments(f"{file} is neither an export of Holdfast nor a state.db") from None


def _parsed(file: Path) -> Iterator[Any]:
    """One JSON document, or one on each line; a file of lines may be of any length."""
    with contextlib.ExitStack() as stack:
        lines = sys.stdin if str(file) == "-" else stack.enter_context(file.open(encoding="utf-8"))
        first = lines.readline(IMPORT_BYTES_MAX + 1)
        try:
            yield json.loads(first)
        except ValueError:
            # Not lines: one document, written over many of them.
            yield json.loads(_limited(first + lines.read(IMPORT_BYTES_MAX)))
            return
        while line := lines.readline(IMPORT_BYTES_MAX + 1):
            if line.strip():
                yield json.loads(_limited(line))


def _limited(text: str) -> str:
    if len(text) > IMPORT_BYTES_MAX:
        raise typer.BadParameter("a session of more than 64 MiB cannot be imported")
    return text
