"""What changed in a session since one of its heads, collection by collection.

The cost follows the change, not the history: messages are found by their seq, supersessions by
their change number, and the rows of the other collections by the number of the head that last
listed them (`last_head`; None once they changed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Table, bindparam, select
from sqlmodel import SQLModel

from holdfast.domain.canonical import sha256
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, by_key, table
from holdfast.storage.database.tables import Call, Message, Run, SubagentInvocation, Supersession
from holdfast.storage.database.tables_history import Checkpoint, Derivation, Head
from holdfast.storage.sessions.lineage import Level, levels, live

IDS_PER_STATEMENT = 500
_messages, _supersessions = table(Message), table(Supersession)
_heads, _derivations = table(Head), table(Derivation)
_HEADS_BETWEEN = (
    select(_heads)
    .where(
        _heads.c.session_id == bindparam(KEY),
        _heads.c.number >= bindparam("first"),
        _heads.c.number < bindparam("before"),
    )
    .order_by(_heads.c.number)
)


@dataclass(frozen=True)
class Delta:
    """Entries that are new and entries that are different; nothing is ever removed."""

    append: list[dict[str, Any]] = field(default_factory=list)
    replace: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.append or self.replace)


@dataclass(frozen=True)
class Kind:
    """A collection whose rows carry head numbers: which facts it keeps, and when they are final."""

    model: type[SQLModel]
    facts: tuple[str, ...]
    final: Callable[[Row[Any]], bool]


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


KINDS = {
    "runs": Kind(
        Run,
        _names(
            "id state created_at completed_at operator_message primary_response finish_reason "
            "tokens_in tokens_out steps"
        ),
        lambda row: row.state in ("done", "failed", "cancelled"),
    ),
    "calls": Kind(
        Call,
        _names(
            "id run_id head step attempt agent_path type status request_ref message_id "
            "response_ref model provider input_tokens output_tokens cost_usd created_at "
            "completed_at"
        ),
        lambda row: row.completed_at is not None,
    ),
    "checkpoints": Kind(
        Checkpoint,
        _names(
            "id run_id created_at created_by message_seq change resumed_at rolled_back "
            "superseded_by archived"
        ),
        lambda row: True,  # `holdfast.storage.moves.checkpoints` clears last_head with every change
    ),
    "invocations": Kind(
        SubagentInvocation,
        _names(
            "id type run_id subagent_name agent_path tool_call_id callee_session "
            "caller_head_before callee_head_before state spawned_at exited_at exit_code"
        ),
        lambda row: row.state in ("done", "failed", "killed"),
    ),
}


@dataclass(frozen=True)
class Base:
    """The head that messages are counted from, and at which level of the chain it lies."""

    head_id: str
    level: int
    message_seq: int
    change: int


def base_of(db: Db, chain: Sequence[Level], basis: Head | None) -> Base | None:
    """The session's own basis, or the head of the nearest source that has one."""
    if basis is not None:
        return Base(basis.id, 0, basis.message_seq, basis.change)
    for index in range(1, len(chain)):
        edge = (
            select(_heads.c.id, _heads.c.message_seq, _heads.c.change)
            .join(_derivations, _derivations.c.source_head == _heads.c.id)
            .where(_derivations.c.target_session == chain[index - 1].session_id)
        )
        found = db.connection().execute(edge).first()
        if found is not None:
            return Base(found.id, index, found.message_seq, found.change)
    return None


def messages_since(db: Db, session_id: str, basis: Head | None) -> tuple[str | None, Delta]:
    """The head that messages build on, and what came or changed after it."""
    chain = levels(db, session_id)
    base = base_of(db, chain, basis)
    nearest = chain if base is None else chain[: base.level + 1]
    fresh: list[dict[str, Any]] = []
    touched: set[str] = set()
    for index, level in enumerate(nearest):
        at_base = base is not None and index == base.level
        seq, change = (base.message_seq, base.change) if base and at_base else (0, 0)
        fresh += _new_messages(db, level, seq)
        touched |= _touched(db, level, change)
    fresh.sort(key=lambda entry: entry["seq"])
    ids = {entry["id"] for entry in fresh}
    changed = _entries(db, touched - ids)
    causes = causes_of(db, chain, [*ids, *(entry["id"] for entry in changed)])
    delta = Delta(*([_with_causes(entry, causes) for entry in part] for part in (fresh, changed)))
    return (None if base is None else base.head_id), delta


def rows_since(db: Db, kind: Kind, session_id: str, number: int) -> tuple[Delta, list[Row[Any]]]:
    """Rows that head `number` does not list as they are, and those rows themselves."""
    wanted = _unlisted(table(kind.model))
    rows = list(db.connection().execute(wanted, {KEY: session_id, "number": number}))
    delta = Delta()
    for row in rows:
        known = row.first_head is not None and row.first_head <= number
        entry = {name: getattr(row, name) for name in kind.facts}
        (delta.replace if known else delta.append).append(entry)
    return delta, rows


@lru_cache(maxsize=16)
def _unlisted(place: Table) -> Select[Any]:
    unlisted = place.c.last_head.is_(None) | (place.c.last_head > bindparam("number"))
    return select(place).where(place.c.session_id == bindparam(KEY), unlisted).order_by(place.c.id)


def stamp(db: Db, kind: Kind, rows: Iterable[Row[Any]], number: int) -> None:
    """Remember that head `number` lists these rows; those that may still change stay open."""
    listed = [
        {
            KEY: row.id,
            "first_head": number if row.first_head is None else row.first_head,
            "last_head": number if kind.final(row) else None,
        }
        for row in rows
    ]
    if listed:
        db.connection().execute(by_key(table(kind.model)), listed)


def heads_since(db: Db, session_id: str, basis: Head | None, number: int) -> Delta:
    """The heads that the basis could not know: itself, and those that came after it."""
    first = 0 if basis is None else basis.number
    rows = db.connection().execute(
        _HEADS_BETWEEN, {KEY: session_id, "first": first, "before": number}
    )
    return Delta(
        append=[
            {
                "id": row.id,
                "number": row.number,
                "basis": row.basis,
                "run_id": row.run_id,
                "checkpoint_id": row.checkpoint_id,
            }
            for row in rows
        ]
    )


def causes_of(db: Db, chain: Sequence[Level], ids: Sequence[str]) -> dict[str, list[str]]:
    """Why each of these messages is superseded, as `cause:id`, sorted."""
    causes: dict[str, list[str]] = {}
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        among = _supersessions.c.message_id.in_(ids[start : start + IDS_PER_STATEMENT])
        for level in chain:
            rows = select(_supersessions).where(live(level), among)
            for row in db.connection().execute(rows):
                causes.setdefault(row.message_id, []).append(f"{row.cause}:{row.cause_id}")
    return {message_id: sorted(found) for message_id, found in causes.items()}


def message_entry(row: Row[Any]) -> dict[str, Any]:
    """What a state keeps of a message: facts, and the hash of its text."""
    return {
        "id": row.id,
        "session_id": row.session_id,
        "seq": row.seq,
        "run_id": row.run_id,
        "role": row.role,
        "agent_path": row.agent_path,
        "content_hash": sha256(row.content.encode("utf-8", "surrogatepass")),
        "char_count": len(row.content),
        "created_at": row.created_at,
    }


def _new_messages(db: Db, level: Level, seq: int) -> list[dict[str, Any]]:
    wanted = select(_messages).where(
        _messages.c.session_id == level.session_id, _messages.c.seq > seq
    )
    if level.cutoff_seq is not None:
        wanted = wanted.where(_messages.c.seq <= level.cutoff_seq)
    return [message_entry(row) for row in db.connection().execute(wanted)]


def _touched(db: Db, level: Level, change: int) -> set[str]:
    """Messages that this level superseded, or stopped superseding, after a change."""
    ids: set[str] = set()
    for column in (_supersessions.c.change, _supersessions.c.undone_change):
        when: ColumnElement[bool] = column > change
        if level.cutoff_change is not None:
            when &= column <= level.cutoff_change
        rows = select(_supersessions.c.message_id).where(
            _supersessions.c.session_id == level.session_id, when
        )
        ids |= set(db.connection().execute(rows).scalars())
    return ids


def _entries(db: Db, message_ids: Iterable[str]) -> list[dict[str, Any]]:
    ids = sorted(message_ids)
    entries: list[dict[str, Any]] = []
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        chosen = _messages.c.id.in_(ids[start : start + IDS_PER_STATEMENT])
        rows = db.connection().execute(select(_messages).where(chosen))
        entries += [message_entry(row) for row in rows]
    return sorted(entries, key=lambda entry: int(entry["seq"]))


def _with_causes(entry: dict[str, Any], causes: dict[str, list[str]]) -> dict[str, Any]:
    return {**entry, "superseded_by": causes.get(entry["id"], [])}
