"""The memory of a project's agents: search it, bring it up to date, see how it stands."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from holdfast.cli.output import AsJson, ago, clean, emit, size

app = typer.Typer(no_args_is_help=True)
ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="A project's id or name.")]
LOOK_EVERY_S, LOOK_ON_S = 0.5, 6 * 3_600.0
SLOW_S = 60.0


@app.command("search")
def search(
    project: ProjectName,
    words: Annotated[list[str], typer.Argument(help="What to remember.")],
    limit: Annotated[int | None, typer.Option(min=1, max=50, help="How many hits.")] = None,
    min_score: Annotated[float | None, typer.Option(min=0, max=1, help="None worse.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search what a project's agents remember, by meaning and by words."""
    from holdfast.cli.connection import connect

    body: dict[str, Any] = {"query": " ".join(words), "limit": limit, "min_score": min_score}
    with connect(timeout_s=SLOW_S) as client:
        answer = client.post(f"{_path(project)}/search", body)
    emit(answer, as_json=as_json, text="\n".join(_hits(answer)))


@app.command("sync")
def sync(
    project: ProjectName,
    force: Annotated[bool, typer.Option("--force", help="Build the index anew.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not look on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a memory to what its files and sessions are now; Ctrl-C only stops looking on."""
    from holdfast.cli.connection import connect

    with connect(timeout_s=SLOW_S) as client:
        answer = client.post(f"{_path(project)}/sync", {"force": force})
        deadline = time.monotonic() + LOOK_ON_S
        running = answer["state"] == "running"
        while running and not no_wait and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            running = client.get(f"{_path(project)}/status")["sync"]["state"] == "running"
            answer = {"state": "running" if running else "done", "report": None}
    emit(answer, as_json=as_json, text=_report(answer))


@app.command("status")
def status(project: ProjectName, as_json: AsJson = False) -> None:
    """Show what a memory holds, whether it is up to date, and whether a sync goes on."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get(f"{_path(project)}/status")
    emit(answer, as_json=as_json, text="\n".join(_status(answer)))


def _path(project: str) -> str:
    return f"/memory/{quote(project, safe='')}"


def _hits(answer: dict[str, Any]) -> list[str]:
    lines = []
    for hit in answer["items"]:
        place = f"{hit['path']}:{hit['start_line']}-{hit['end_line']}  {hit['score']:.2f}"
        lines += [clean(place), clean("  " + " ".join(hit["snippet"].split()))]
    if not answer["items"]:
        lines.append("nothing found")
    if answer["stale"]:
        lines.append("something is not indexed yet: `holdfast memory sync`")
    return lines + [clean(f"warning: {one}") for one in answer["warnings"]]


def _report(answer: dict[str, Any]) -> str:
    report = answer["report"]
    if report is None:
        return str(answer["state"])
    changed = f"{report['files_changed']} changed, {report['files_removed']} gone"
    said = f"{report['files']} documents ({changed}), {report['chunks']} chunks"
    if report["reindexed"]:
        said += f"; built anew: {report['reason']}"
    if report["fell_back"]:
        said += f"; {report['provider']} answered: {report['fell_back']}"
    return clean(said)


def _status(answer: dict[str, Any]) -> list[str]:
    sync_ = answer["sync"]
    state = "behind" if answer["dirty"] else "up to date"
    if sync_["state"] == "running":
        state = f"syncing, {sync_['done'] or 0} of {sync_['total'] or '?'}"
    lines = [
        f"{state}; last sync {ago(answer['last_sync_at'])}",
        f"{answer['files']} documents, {answer['chunks']} chunks, {size(answer['bytes'])}",
        f"embeddings: {answer['provider']} {answer['model']}",
        f"file: {answer['path']}",
    ]
    if answer["last_error"]:
        lines.append(f"last error: {answer['last_error']}")
    return [clean(line) for line in lines + [f"warning: {one}" for one in answer["warnings"]]]
