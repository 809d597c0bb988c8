"""Looking after the store: how big it is, whether it is sound, and the search index."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cli.errors import EXIT_FAILED
from cli.output import AsJson, emit, emit_table, mib

SLOW_S = 600.0


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (du, doctor, reindex):
        app.command()(command)


def du(as_json: AsJson = False) -> None:
    """Show what takes how much room."""
    from cli.connection import connect

    with connect() as client:
        answer = client.get("/admin/storage")
    if as_json:
        emit(answer, as_json=True, text="")
        return
    rows = [(name, _amount(name, size)) for name, size in _flat(answer)]
    emit_table([], as_json=False, columns=("what", "how much"), rows=rows)


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Read and hash every blob too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check that rows, blobs, heads and hash chains agree; exit code 1 when they do not."""
    from cli.connection import connect

    with connect(timeout_s=SLOW_S) as client:
        path = "/admin/consistency"
        answer = client.request("POST", path, params={"mode": "deep" if deep else "quick"})
    lines = [json.dumps(issue, ensure_ascii=False) for issue in answer["issues"]] or ["sound"]
    lines += [f"warning: {warning}" for warning in answer["warnings"]]
    emit(answer, as_json=as_json, text="\n".join(lines))
    if answer["status"] != "ok":
        raise typer.Exit(EXIT_FAILED)


def reindex(as_json: AsJson = False) -> None:
    """Build the search index anew while serving goes on."""
    from cli.connection import connect

    with connect(timeout_s=SLOW_S) as client:
        answer = client.post("/admin/reindex")
    emit(answer, as_json=as_json, text=f"{answer['state']}: {answer['behind']} messages to go")


def _amount(name: str, size: float) -> str:
    return mib(size) if "bytes" in name or ".files." in name else str(size)


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(prefix, value)] if isinstance(value, int | float) else []
    found: list[tuple[str, Any]] = []
    for name, inner in value.items():
        found += _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    return found
