"""What a session needs from a person, and its trouble, as lines and cells of a terminal."""

from __future__ import annotations

import time
from typing import Any

from holdfast.cli.output import Styled, ago

STYLES = {"run_failed": "bold red", "host_away": "magenta"}
ASKS = "bold yellow"
WORDS_MAX = 300


def cell(session: dict[str, Any]) -> str:
    """The kind of what it needs, in its colour; provider trouble where it needs nothing."""
    needs = session.get("attention")
    if needs is not None:
        return Styled(needs["kind"], STYLES.get(needs["kind"], ASKS))
    return Styled("retrying", "yellow") if session.get("trouble") else ""


def lines(session: dict[str, Any]) -> list[str]:
    """What `holdfast show` says of it: the need, what to do, waiting words, provider trouble."""
    found = []
    needs, last = session.get("attention"), session.get("last_run")
    if needs is not None:
        since = ago(needs["since"])
        found.append(f"needs you ({needs['kind']}, {since}): {needs['text'][:WORDS_MAX]}")
        hint = _hint(session["id"], needs["kind"])
        found += [f"  {hint}"] if hint else []
    elif last is not None and last["state"] != "done":
        error = last.get("error") or {}
        found.append(f"last run {last['state']}: {error.get('message') or last['id']}")
    if session.get("trouble"):
        found.append(trouble_line(session["trouble"]))
    if session.get("waiting"):
        found.append(f"messages that wait: {session['waiting']} (`holdfast waiting`)")
    return found


def trouble_line(trouble: dict[str, Any]) -> str:
    """When the provider is asked again, and why."""
    began = trouble.get("at") or time.time() * 1000
    left_s = max(0.0, (began + trouble["next_in_ms"]) / 1000 - time.time())
    return (
        f"the provider does not answer ({trouble['code']}): attempt {trouble['attempt']}"
        f" in {left_s:.0f} s: {trouble['message'][:WORDS_MAX]}"
    )


def _hint(session_id: str, kind: str) -> str:
    return {
        "question": f'holdfast resume {session_id} "your answer"',
        "budget": f"holdfast resume {session_id}",
        "compaction": f"holdfast resume {session_id} --compaction approve|reject",
        "run_failed": f"holdfast retry {session_id}, or holdfast seen {session_id}",
    }.get(kind, "")
