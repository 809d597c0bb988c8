"""What an import may name: rows and blobs that its document carries, or rows of the same operator.

Everything else is left out, with a warning: a document is written by whoever sends it, and an id in
it proves nothing. What a row cannot do without drops the row; a damaged state root is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from holdfast.domain.errors import ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.transfer import blob_names
from holdfast.storage.transfer.archive import COLLECTIONS

SESSIONS = "sessions"
IDS_PER_STATEMENT = 500
# Which column of a collection names a row of which other collection.
FIELDS: dict[str, dict[str, str]] = {
    "session": {
        "current_head": "heads",
        "active_run": "runs",
        "last_run_id": "runs",
        "current_checkpoint": "checkpoints",
        "forked_from": SESSIONS,
        "parent_session_id": SESSIONS,
    },
    "messages": {"run_id": "runs", "invocation_id": "subagent_invocations"},
    "supersessions": {"message_id": "messages"},
    "runs": {"operator_message": "messages", "primary_response": "messages"},
    "calls": {"run_id": "runs", "head": "heads", "message_id": "messages"},
    "tool_calls": {
        "run_id": "runs",
        "message_id": "messages",
        "result_message_id": "messages",
    },
    "subagent_invocations": {
        "run_id": "runs",
        "tool_call_id": "tool_calls",
        "callee_session": SESSIONS,
        "caller_head_before": "heads",
        "caller_head_after": "heads",
        "callee_head_before": "heads",
        "callee_head_after": "heads",
    },
    "checkpoints": {
        "run_id": "runs",
        "compaction_id": "compactions",
        "message_history_cursor": "messages",
        "head_id": "heads",
    },
    "prompt_edits": {"checkpoint_id": "checkpoints"},
    "compactions": {
        "run_id": "runs",
        "summary_message_id": "messages",
        "checkpoint_id": "checkpoints",
        "superseded_message_ids": "messages",
    },
    "heads": {
        "basis": "heads",
        "run_id": "runs",
        "checkpoint_id": "checkpoints",
        "final_ref": "messages",
    },
    "derivations": {"source_session": SESSIONS, "source_head": "heads"},
    "ptys": {"run_id": "runs", "tool_call_id": "tool_calls"},
    "transcripts": {"run_id": "runs", "pty_id": "ptys"},
    "events": {},
}
# A row that names nothing here is no row.
_NEEDED = {
    ("supersessions", "message_id"),
    ("tool_calls", "run_id"),
    ("subagent_invocations", "run_id"),
    ("prompt_edits", "checkpoint_id"),
    ("derivations", "source_session"),
    ("transcripts", "pty_id"),
    ("transcripts", "transcript"),
}
# Ids that are only shown. A purge or an old export leaves them without their row, and so they stay.
_SHOWN = {
    ("messages", "run_id"),
    ("messages", "invocation_id"),
    ("calls", "message_id"),
    ("heads", "run_id"),
    ("heads", "checkpoint_id"),
    ("heads", "final_ref"),
}
_ID = re.compile(r"[\w.:-]{1,128}")
_sessions = table(SessionRow)
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Sieve:
    """Takes foreign references out of the rows of one document."""

    db: Db
    operator_id: str
    blobs: frozenset[str]
    carried: dict[str, set[str]] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)

    def carry(self, session_id: str, rows: Rows) -> None:
        """Count these rows among those that the document brings; they must be stored then."""
        self.carried.setdefault(SESSIONS, set()).add(session_id)
        for name, given in rows.items():
            ids = {str(row["id"]) for row in given if "id" in row}
            if not all(_ID.fullmatch(one) for one in ids):
                raise ValidationFailed(f"the export has an id in {name} that is no id")
            self.carried.setdefault(name, set()).update(ids)

    def session(self, row: SessionRow) -> None:
        """Take out of a session's own row what is not the operator's."""
        values = {name: getattr(row, name) for name in FIELDS["session"]}
        (kept,) = self._sifted("session", [values])
        for name, value in kept.items():
            setattr(row, name, value)
        row.prompts = self._prompts("session", row.prompts)

    def rows(self, rows: Rows) -> Rows:
        """The rows without foreign references."""
        return {name: self._blobs(name, self._sifted(name, rows[name])) for name in COLLECTIONS}

    def root(self, head: dict[str, Any], data: bytes) -> None:
        """Refuse a state root that names deltas, prompts or heads of somebody else."""
        root = blob_names.parsed_root(data)
        named = blob_names.in_root(data) if root else blob_names.mentioned(data)
        if head["state_ref"] != f"sha256:{head['id']}" or not named <= self.blobs:
            raise ValidationFailed(
                f"head {head['id'][:80]} names a state that is not in the export"
            )
        parts = root["collections"].values() if root else ()
        bases = {str(part["basis"]) for part in parts if part.get("basis") is not None}
        if not bases <= self._allowed("heads", bases):
            raise ValidationFailed(f"head {head['id'][:80]} builds on a head that is not yours")

    def warnings(self) -> list[str]:
        """What was left out, a line for each column."""
        return [
            f"{where}: left out {count} that named nothing of yours"
            for where, count in sorted(self._left_out.items())
            if count
        ]

    def _sifted(self, name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [dict(row) for row in rows]
        for column, target in FIELDS[name].items():
            named = {one for row in kept for one in _names(row.get(column))}
            allowed = self._allowed(target, named, unknown=(name, column) in _SHOWN)
            kept = [row for row in kept if self._settle(name, column, row, allowed)]
        return kept

    def _settle(self, name: str, column: str, row: dict[str, Any], allowed: set[str]) -> bool:
        """Whether the row stays; what it must not name is gone from it."""
        value = row.get(column)
        foreign = [one for one in _names(value) if one not in allowed]
        self._left_out[f"{name}.{column}"] += len(foreign)
        if not foreign:
            return True
        if isinstance(value, list):
            row[column] = [one for one in value if one in allowed]
        else:
            row[column] = None
        return (name, column) not in _NEEDED

    def _allowed(self, target: str, named: Iterable[str], *, unknown: bool = False) -> set[str]:
        """Those of the ids that the document carries or the operator has; `unknown`: or nobody."""
        named = set(named)
        allowed = named & self.carried.get(target, set())
        open_ids = sorted(named - allowed)
        owners = self._owners(target, open_ids)
        for one in open_ids:
            if owners.get(one) == self.operator_id or (unknown and one not in owners):
                allowed.add(one)
        return allowed

    def _owners(self, target: str, ids: list[str]) -> dict[str, str]:
        if target == SESSIONS:
            wanted = select(_sessions.c.id, _sessions.c.created_by)
            key = _sessions.c.id
        else:
            model, owner, _ = COLLECTIONS[target]
            place = table(model)
            key = place.c.id
            wanted = select(place.c.id, _sessions.c.created_by).outerjoin(
                _sessions, _sessions.c.id == place.c[owner]
            )
        found: dict[str, str] = {}
        for start in range(0, len(ids), IDS_PER_STATEMENT):
            chunk = wanted.where(key.in_(ids[start : start + IDS_PER_STATEMENT]))
            found |= {row.id: row.created_by or "" for row in self.db.connection().execute(chunk)}
        return found

    def _blobs(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = []
        for row in rows:
            stays = True
            for column in blob_names.COLUMNS.get(name, ()):
                if row.get(column) is not None and row[column] not in self.blobs:
                    self._left_out[f"{name}.{column}"] += 1
                    if name == "heads":
                        raise ValidationFailed(f"the state of head {row['id'][:80]} is missing")
                    row[column] = None
                    stays = stays and (name, column) not in _NEEDED
            if name == "checkpoints" and row.get("prompts"):
                row["prompts"] = self._prompts(name, row["prompts"])
            kept += [row] if stays else []
        return kept

    def _prompts(self, name: str, prompts: dict[str, str]) -> dict[str, str]:
        kept = {
            agent: blob_id
            for agent, blob_id in prompts.items()
            if not blob_names.is_name(blob_id) or blob_id in self.blobs
        }
        self._left_out[f"{name}.prompts"] += len(prompts) - len(kept)
        return kept


def _names(value: object) -> list[str]:
    """The ids in a column: one, a list of them, or none."""
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
