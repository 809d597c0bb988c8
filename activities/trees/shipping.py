"""Snapshots in the blob store, so that any machine of a fleet can bring a session's files back.

The git folder of each machine stays the one that restores use. What is taken here is bundled and
stored before its checkpoint names it; what was taken elsewhere is fetched before it is restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from activities.refusals import blob_wait_is_over
from activities.trees.bundles import Bundle, TooLarge
from activities.trees.shadow_git import GitTrouble
from activities.trees.snapshots import Trees
from holdfast.domain.errors import Conflict, Unavailable
from holdfast.storage.database.blobs import BlobDamaged, BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Blob, TreeBundle
from holdfast.storage.moves import tree_bundles

MEDIA_TYPE = "application/x-git-bundle"
ELSEWHERE = (
    "the files cannot be restored: they were saved on another host, and the blob store has no"
    " bundle of them"
)
log = structlog.get_logger()


@dataclass(frozen=True)
class Shipment:
    """A stored bundle, or words about why the snapshot stays on this machine."""

    session_id: str = ""
    tree: str = ""
    blob: Blob | None = None
    basis: str | None = None
    note: str = ""

    def commit(self, db: Db) -> None:
        """Name the bundle, in the transaction that names the snapshot."""
        if self.blob is not None:
            tree_bundles.note(db, self.session_id, self.tree, self.blob, basis=self.basis)


class Shipping:
    """Bundles of this machine's snapshots, and of others'.

    A file of SQLite belongs to one machine: nothing is shipped there.
    """

    def __init__(self, store: OpenStore, trees: Trees, mib_max: Callable[[], int]) -> None:
        self._store = store
        self._trees = trees
        self._mib_max = mib_max

    async def store(self, session: SessionRow, tree: str | None) -> Shipment:
        """Put a snapshot of this machine into the blob store, once."""
        if tree is None or self._store.is_sqlite:
            return Shipment()
        if await self._store.aread(lambda db: tree_bundles.find(db, session.id, tree)):
            return Shipment()
        basis = await self._store.aread(lambda db: tree_bundles.basis_for_next(db, session.id))
        try:
            bundle = await asyncio.to_thread(self._bundle, session, tree, basis)
            blob = await asyncio.to_thread(self._store.blobs.put, bundle.data, MEDIA_TYPE)
        except TooLarge:
            limit = f"[fleet] snapshot_mib_max = {self._mib_max()}"
            return Shipment(note=f"only on this machine: its bundle is larger than {limit}")
        except (GitTrouble, Unavailable, OSError) as error:
            log.warning("snapshot.not_shipped", session_id=session.id, error=str(error)[:300])
            return Shipment(note=f"only on this machine: {str(error)[:300]}")
        return Shipment(session.id, tree, blob, bundle.basis)

    async def fetch(self, session: SessionRow, tree: str) -> None:
        """Have a snapshot here, wherever it was taken; Conflict in words when that cannot be.

        Safe to repeat: what was unpacked is not fetched again.
        """
        folder = session.working_directory
        if self._store.is_sqlite or await asyncio.to_thread(self._trees.has, folder, tree):
            return
        try:
            chain = await self._store.aread(lambda db: tree_bundles.chain(db, session.id, tree))
            if not chain:
                raise BlobMissing("the bundle of a snapshot")
            await asyncio.to_thread(self._unpack, folder, chain)
        except BlobMissing as error:
            if isinstance(error, BlobDamaged) or blob_wait_is_over():
                raise Conflict(ELSEWHERE) from error
            # Who saved it may be storing it just now, and a shared folder takes its time.
            raise Unavailable(ELSEWHERE) from error
        except GitTrouble as error:
            raise Conflict(f"the files cannot be restored: {error}") from error

    def _bundle(self, session: SessionRow, tree: str, basis: str | None) -> Bundle:
        folder, bytes_max = session.working_directory, self._mib_max() << 20
        return self._trees.bundle(folder, tree, basis=basis, bytes_max=bytes_max)

    def _unpack(self, folder: str, chain: list[TreeBundle]) -> None:
        for bundle in chain:
            if not self._trees.has(folder, bundle.tree):
                self._trees.unbundle(folder, bundle.tree, self._store.blobs.read(bundle.blob))
