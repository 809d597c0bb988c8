"""Whether a head's state root can be read, agrees with the head's facts, and has all its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Head
from holdfast.storage.moves import heads

_sessions = table(SessionRow)


@dataclass(frozen=True)
class IssueFound:
    """What kind of trouble, in which row, of which session if it is of one."""

    type: str
    id: str
    session_id: str | None = None


def head_issues(store: OpenStore, head: Head, known: dict[str, bool]) -> Iterator[IssueFound]:
    """What is wrong with one head; `known` remembers which components were read already."""
    if head.state_ref != f"sha256:{head.id}":
        yield IssueFound("head-state-ref-mismatch", head.id, head.session_id)
    try:
        root = heads.root(store.blobs, head.id)
        parts = [(name, root["collections"][name]) for name in heads.COLLECTIONS]
    except (BlobMissing, ValueError, KeyError, TypeError):
        yield IssueFound("head-state-unreadable", head.id, head.session_id)
        if _is_current(store, head):
            yield IssueFound("current-head-state-unreadable", head.id, head.session_id)
        return
    yield from _disagreements(head, root)
    for name, part in parts:
        yield from _component_issues(store, head, name, part, known)


def _disagreements(head: Head, root: dict[str, Any]) -> Iterator[IssueFound]:
    facts = {
        "head-state-version-mismatch": (root.get("version"), head.state_version),
        "head-state-session-mismatch": (root.get("session", {}).get("id"), head.session_id),
        "head-state-basis-mismatch": (root.get("basis"), head.basis),
        "head-state-final-ref-mismatch": (root.get("final_ref"), head.final_ref),
        "head-state-snapshot-ref-mismatch": (root.get("snapshot_id"), head.checkpoint_id),
    }
    for issue, (said, fact) in facts.items():
        if said != fact:
            yield IssueFound(issue, head.id, head.session_id)


def _component_issues(
    store: OpenStore, head: Head, name: str, part: dict[str, Any], known: dict[str, bool]
) -> Iterator[IssueFound]:
    reference = part.get("delta_ref")
    if reference is not None:
        if reference not in known:
            known[reference] = _readable(store, reference)
        if not known[reference]:
            gone = not store.blobs.exists(reference)
            issue = "missing" if gone else "unreadable"
            yield IssueFound(f"head-state-component-{issue}", reference, head.session_id)
    basis = part.get("basis")
    if basis is not None and not store.blobs.exists(f"sha256:{basis}"):
        yield IssueFound("head-state-component-basis-missing", f"{head.id}/{name}", head.session_id)


def _readable(store: OpenStore, reference: str) -> bool:
    try:
        delta = store.blobs.read_json(reference)
        return all(isinstance(delta[key], list) for key in ("append", "replace", "remove"))
    except (BlobMissing, ValueError, KeyError, TypeError):
        return False


def _is_current(store: OpenStore, head: Head) -> bool:
    mine = select(_sessions.c.current_head).where(_sessions.c.id == head.session_id)
    return bool(store.read(lambda db: db.connection().execute(mine).scalar()) == head.id)
