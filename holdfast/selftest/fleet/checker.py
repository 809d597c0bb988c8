"""The checks of one machine, and those of a fleet: once, on its host, whole, at rest."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import select

from holdfast.selftest import checker
from holdfast.selftest.fleet.record import FleetRecord
from holdfast.selftest.record import Finding
from holdfast.storage.database.blobs import BlobDamaged, BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import Pty, PtyTranscript
from holdfast.storage.database.tables_hosts import Execution

_sessions, _calls, _ptys = table(SessionRow), table(ToolCallRow), table(Pty)
_transcripts, _executions = table(PtyTranscript), table(Execution)
PROCESSES = "processes"
NUMBERED = re.compile(r"(word\w+)-(\d+)")
NUMBERED_COMMAND = re.compile(r"seq -f '(word\w+)-")
States = Mapping[str, Path]


def check(store: OpenStore, record: FleetRecord, states: States) -> list[Finding]:
    """Every finding. `states`: the state folder of each terminal host, by the host's id."""
    found = checker.check(store, record)
    started = started_on(states)
    for promise in (once, on_its_host, at_rest):
        found += store.read(partial(_all, promise, started=started, states=states))
    found += store.read(lambda db: list(outputs(db, store, record)))
    found += store.read(lambda db: list(transcripts(db, store, record)))
    return found


def started_on(states: States) -> dict[str, list[str]]:
    """The hosts that have a record of a process, by its key: a tool call, or a terminal."""
    found: dict[str, list[str]] = defaultdict(list)
    for host_id, folder in states.items():
        for path in (folder / PROCESSES).glob("*/request.json"):
            request = json.loads(path.read_bytes())["request"]
            found[str(request["key"])].append(host_id)
    return dict(found)


def once(_: Db, started: Mapping[str, list[str]], states: States) -> Iterator[Finding]:
    """No process was started on two hosts."""
    for key, places in started.items():
        if len(places) > 1:
            yield Finding("started_twice", f"{key} was started on {', '.join(places)}")


def on_its_host(db: Db, started: Mapping[str, list[str]], states: States) -> Iterator[Finding]:
    """Terminals and claimed calls are where the database says, and sessions on a host we know."""
    for row in db.connection().execute(select(_ptys)):
        places = started.get(row.id, [])
        if row.host_id not in places:
            words = f"terminal {row.id} is filed on {row.host_id} and was started on {places}"
            yield Finding("terminal_elsewhere", words, row.session_id)
    for row in db.connection().execute(select(_executions)):
        places = started.get(row.call_id, [])
        if places and row.host_id not in places:
            words = f"call {row.call_id} was claimed for {row.host_id} and started on {places}"
            yield Finding("command_elsewhere", words, row.session_id)
    for row in db.connection().execute(select(_sessions.c.id, _sessions.c.host_id)):
        if row.host_id is not None and row.host_id not in states:
            yield Finding("unknown_host", f"its host is {row.host_id}", row.id)


def at_rest(db: Db, started: Mapping[str, list[str]], states: States) -> Iterator[Finding]:
    """No claim is open whose call is over, and no terminal of a call that is over is alive."""
    both = _executions.join(_calls, _calls.c.id == _executions.c.call_id)
    is_open = (_executions.c.state == "claimed") & _calls.c.state.in_(("done", "failed"))
    chosen = select(_executions.c.call_id, _executions.c.session_id).select_from(both)
    for row in db.connection().execute(chosen.where(is_open)):
        yield Finding("claim_open", f"call {row.call_id} is over", row.session_id)
    alive = _ptys.c.state != "closed"
    shells = _ptys.join(_calls, _calls.c.id == _ptys.c.tool_call_id)
    ended = select(_ptys.c.id, _ptys.c.session_id).select_from(shells)
    for row in db.connection().execute(ended.where(alive, _calls.c.state == "done")):
        yield Finding("terminal_open", f"{row.id}: its call is done", row.session_id)


def outputs(db: Db, store: OpenStore, record: FleetRecord) -> Iterator[Finding]:
    """A command that ended well has its whole output, each line once and in order."""
    shells = select(_calls).where(_calls.c.tool_name == "shell", _calls.c.state == "done")
    for row in db.connection().execute(shells):
        if not isinstance(row.output, dict) or row.output.get("exit_code") != 0:
            continue
        word = _word_of(str(row.input.get("command", "")), record)
        if word is None:
            continue
        text = _whole(store, row.output)
        trouble = "its blob cannot be read" if text is None else not_whole(text, word, record)
        if trouble is not None:
            yield Finding("output_not_whole", f"{word}: {trouble}", row.session_id)


def transcripts(db: Db, store: OpenStore, record: FleetRecord) -> Iterator[Finding]:
    """The transcript of a terminal whose command ended well is whole, and its blob is there."""
    both = _transcripts.join(_ptys, _ptys.c.id == _transcripts.c.pty_id)
    chosen = select(_transcripts, _ptys.c.command, _ptys.c.exit_code).select_from(both)
    for row in db.connection().execute(chosen):
        try:
            store.blobs.read(row.transcript)
        except (BlobMissing, BlobDamaged) as error:
            yield Finding("transcript_lost", f"terminal {row.pty_id}: {error}", row.session_id)
            continue
        word = _word_of(row.command, record)
        if word is None or row.exit_code != 0:
            continue
        trouble = not_whole(row.text, word, record)
        if trouble is not None:
            yield Finding("transcript_not_whole", f"{word}: {trouble}", row.session_id)
    without = select(_ptys).where(
        _ptys.c.state == "closed", _ptys.c.exit_code == 0, _ptys.c.tool_call_id.is_not(None)
    )
    kept = {row.pty_id for row in db.connection().execute(select(_transcripts.c.pty_id))}
    for row in db.connection().execute(without):
        if row.id not in kept:
            yield Finding("transcript_lost", f"terminal {row.id} has none", row.session_id)


def not_whole(text: str, word: str, record: FleetRecord) -> str | None:
    """What is wrong with the numbered lines of this word; None when nothing is."""
    seen = [int(number) for found, number in NUMBERED.findall(text) if found == word]
    expected = record.outputs[word]
    if seen == list(range(1, expected + 1)):
        return None
    return f"{len(seen)} of {expected} lines, {len(set(seen))} of them different"


def _whole(store: OpenStore, output: Mapping[str, Any]) -> str | None:
    """The output as a text, from the blob where the result holds only its end."""
    if "output_ref" not in output:
        return str(output["output"])
    try:
        return store.blobs.read(str(output["output_ref"])).decode("utf-8", "replace")
    except (BlobMissing, BlobDamaged):
        return None


def _word_of(command: str, record: FleetRecord) -> str | None:
    found = NUMBERED_COMMAND.search(command)
    return found[1] if found is not None and found[1] in record.outputs else None


def _all(
    promise: Callable[[Db, Mapping[str, list[str]], States], Iterator[Finding]],
    db: Db,
    *,
    started: Mapping[str, list[str]],
    states: States,
) -> list[Finding]:
    return list(promise(db, started, states))
