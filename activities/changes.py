"""What a session changed in its folder, told from the snapshots beside it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from temporalio import activity

from activities.heartbeats import beating
from activities.refusals import answering
from activities.trees.shipping import Shipping
from activities.trees.snapshots import Changed, Trees
from holdfast.domain.checkpoint_steps import ChangesFound, ChangesStep
from holdfast.domain.errors import Conflict
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.moves import checkpoints
from holdfast.storage.sessions import runs, sessions

UNCHANGED = "no run has used a tool that changes files"
NOT_SAVED = "the files before that run could not be saved"


class ChangeActivities:
    """The one step of `ChangesWorkflow`; it only reads."""

    def __init__(self, store: OpenStore, trees: Trees, shipping: Shipping) -> None:
        self.store = store
        self.trees = trees
        self._shipping = shipping

    @activity.defn(name="read_changes")
    @answering
    async def read_changes(self, step: ChangesStep) -> ChangesFound:
        """Compare the folder as it is with a snapshot; the answer is a blob."""
        async with beating():
            session, tree, note = await self.store.aread(lambda db: _before(db, step))
            changed = Changed(note=note)
            if tree is not None:
                await self._shipping.fetch(session, tree)
                ask = self.trees.diff if step.diff else self.trees.changes
                paths = (step.path,) if step.diff else ()
                changed = await asyncio.to_thread(ask, session.working_directory, tree, *paths)
                if changed.trouble:
                    raise Conflict(f"the changes cannot be told: {changed.trouble}")
            answer = _diff(changed) if step.diff else _listed(changed)
            kept = await asyncio.to_thread(self.store.blobs.put_json, answer)
        return ChangesFound(blob_id=kept.id)


def _diff(changed: Changed) -> dict[str, Any]:
    return {"diff": changed.diff}


def _listed(changed: Changed) -> dict[str, Any]:
    return {
        "items": [asdict(file) for file in changed.files],
        "truncated": changed.truncated,
        "not_compared": list(changed.not_compared),
        "note": changed.note,
    }


def _before(db: Db, step: ChangesStep) -> tuple[SessionRow, str | None, str]:
    """The session, the snapshot to compare its folder with, and why there is none."""
    session = sessions.get(db, step.session_id)
    if step.checkpoint_id is not None:
        point = checkpoints.get(db, step.session_id, step.checkpoint_id)
        return session, point.tree, point.tree_note
    tree = runs.tree_of(db, step.session_id, last=step.since == "run")
    if tree is None:
        return session, None, UNCHANGED
    return session, tree or None, "" if tree else NOT_SAVED
