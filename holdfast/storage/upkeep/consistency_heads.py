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


def head_issues(store: OpenStore, head: Head) -> Iterator[IssueFound]:
    """What is wrong with one head."""
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
        yield from _component_issues(store, head, name, part)


def _disagreements(head: Head, root: dict[str, Any]) -> Iterator[IssueFound]:
    facts = {
        "head-state-version-mismatch": (root.get("version"), head.state_version),
        "head-state-session-mismatch": (root.get("session", {}).get("id"), head.session_id),
        "head-state-basis-mismatch": (root.get("basis"), head.basis),
        "head-state-final-ref-mismatch": (root.get("final_ref"), head.final_ref),
        "head-state-snapshot-ref-mismatch": (
            (root.get("snapshot_id"), _snapshot_ref(head, root)),
            (head.checkpoint_id, head.snapshot_ref),
        ),
    }
    for issue, (said, fact) in facts.items():
        if said != fact:
            yield IssueFound(issue, head.id, head.session_id)


def _snapshot_ref(head: Head, root: dict[str, Any]) -> str | None:
    """What the root says; rows and roots of older builds have no hash, which is no disagreement."""
    return None if head.snapshot_ref is None else root.get("snapshot_ref", head.snapshot_ref)


def _component_issues(
    store: OpenStore, head: Head, name: str, part: dict[str, Any]
) -> Iterator[IssueFound]:
    place = f"{head.id}/{name}"
    basis, reference = part.get("basis"), part.get("delta_ref")
    if basis is not None and not store.blobs.exists(f"sha256:{basis}"):
        yield IssueFound("head-state-component-basis-missing", place, head.session_id)
    if reference is None:
        delta = part.get("delta")
    elif not store.blobs.exists(reference):
        yield IssueFound("head-state-component-missing", reference, head.session_id)
        return
    else:
        try:
            delta = store.blobs.read_json(reference)
        except (BlobMissing, ValueError):
            yield IssueFound("head-state-component-unreadable", reference, head.session_id)
            return
    if delta is not None and not _is_delta(delta, name, basis):
        yield IssueFound("head-state-component-mismatch", place, head.session_id)


def _is_delta(delta: Any, name: str, basis: str | None) -> bool:
    """Whether this is a change of the collection `name`, against the head that the root says."""
    return (
        isinstance(delta, dict)
        and (delta.get("collection"), delta.get("basis")) == (name, basis)
        and all(isinstance(delta.get(key), list) for key in ("append", "replace", "remove"))
    )


def _is_current(store: OpenStore, head: Head) -> bool:
    mine = select(_sessions.c.current_head).where(_sessions.c.id == head.session_id)
    return bool(store.read(lambda db: db.connection().execute(mine).scalar()) == head.id)
