"""Looking after the store: how big it is, whether it is sound, and the search index."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.output import AsJson, emit, emit_shown, print_table, size
from holdfast.domain.cages.shown import in_words

SLOW_S = 600.0
LOOK_EVERY_S, LOOK_ON_S = 0.2, 3_600.0


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (du, doctor, reindex):
        app.command()(command)


def du(as_json: AsJson = False) -> None:
    """Show what takes how much room."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get("/admin/storage")
    emit_shown(answer, as_json=as_json, show=_show_storage)


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Read and hash every blob too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check that rows, blobs, heads and hash chains agree, and tell which cage holds programs.

    The exit code is 1 when they do not agree.
    """
    from holdfast.cli.connection import connect

    with connect(timeout_s=SLOW_S) as client:
        path = "/admin/consistency"
        answer = client.request("POST", path, params={"mode": "deep" if deep else "quick"})
    lines = [json.dumps(issue, ensure_ascii=False) for issue in answer["issues"]] or ["sound"]
    lines += [kind["words"] for kind in answer["dangling"]]
    lines += [f"warning: {warning}" for warning in answer["warnings"]]
    # A server of an earlier release does not tell it.
    lines += [in_words(answer["cage"])] if "cage" in answer else []
    emit(answer, as_json=as_json, text="\n".join(lines))
    if answer["status"] != "ok":
        raise typer.Exit(EXIT_FAILED)


def reindex(
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Begin, and do not look on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the search index anew while serving goes on; Ctrl-C only stops looking on."""
    from holdfast.cli.connection import connect

    with connect(timeout_s=SLOW_S) as client:
        answer = client.post("/admin/reindex")
        deadline = time.monotonic() + LOOK_ON_S
        told = 0
        while not no_wait and answer["state"] != "ready" and time.monotonic() < deadline:
            percent = _percent(answer)
            if percent >= told + 10 and not as_json:
                typer.echo(f"{percent} % of {answer['newest']} messages")
                told = percent
            time.sleep(LOOK_EVERY_S)
            answer = client.get("/admin/reindex")
    emit(answer, as_json=as_json, text=f"{answer['state']}: {answer['behind']} messages to go")


def _show_storage(answer: dict[str, Any]) -> None:
    print_table(("what", "room", "holds"), _room(answer))
    largest = answer.get("largest_sessions") or []
    if largest:
        rows = [(one["id"], str(one["messages"]), size(one["chars"]), one["title"] or "")
                for one in largest]  # fmt: skip
        print_table(("your largest sessions", "messages", "text", "title"), rows)


def _percent(progress: dict[str, Any]) -> int:
    return 100 * int(progress["watermark"]) // max(1, int(progress["newest"]))


def _room(answer: dict[str, Any]) -> list[tuple[str, str, str]]:
    counts, database, blobs = answer["row_counts"], answer["database"], answer["blobs"]
    return [
        ("database", size(database["bytes"]), database["kind"]),
        ("  search index", size(database["search_bytes"]), f"{counts['messages']} messages"),
        ("  their text", size(answer["message_chars"]), f"{counts['sessions']} sessions"),
        (
            "blobs",
            size(blobs["files_bytes"]),
            f"{blobs['count']} of {size(blobs['content_bytes'])}",
        ),
        ("memory", size(answer.get("memory_bytes")), "indexes; may be deleted"),
        ("log", "", f"{counts['events']} events, {counts['frames']} frames"),
        ("whole home", size(answer["home_bytes"]), ""),
    ]
