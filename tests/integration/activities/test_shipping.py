"""Snapshots go through the blob store: stored once, fetched elsewhere, swept when unused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from activities.trees.shipping import Shipment, Shipping
from activities.trees.snapshots import Trees
from holdfast.domain.errors import Conflict, Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Blob, Checkpoint, TreeBundle
from holdfast.storage.moves import tree_bundles
from holdfast.storage.sessions import sessions
from holdfast.storage.upkeep import old_bundles, removal
from tests.support.sample_library import SampleLibrary
from tests.support.stored_rows import blob_row


class Machine:
    """One machine's git folders, and the session that it works for."""

    def __init__(self, store: OpenStore, root: Path, session: SessionRow) -> None:
        self.store = store
        self.trees = Trees(root)
        self.session = session
        self.mib_max = 64
        self.shipping = Shipping(store, self.trees, lambda: self.mib_max)
        self.file = Path(session.working_directory) / "file"
        self.points: dict[str, str] = {}

    async def save(self, text: str) -> str:
        """A checkpoint with this text in the file, its bundle stored."""
        self.file.write_text(text)
        tree = self.trees.take(self.session.working_directory).tree
        assert tree is not None
        shipment = await self.shipping.store(self.session, tree)
        self.store.write(shipment.commit)
        point = Checkpoint(
            id=new_id(), session_id=self.session.id, created_by="operator", tree=tree
        )
        self.store.write(lambda db: insert_once(db, Checkpoint, point.model_dump()))
        self.points[tree] = point.id
        return tree

    def forget(self, tree: str) -> None:
        """The checkpoint of this snapshot names it no more."""
        self.store.write(lambda db: change(db, Checkpoint, self.points[tree], tree=None))

    async def restore(self, tree: str) -> str:
        """What is in the file after the snapshot was brought back here."""
        await self.shipping.fetch(self.session, tree)
        self.trees.restore(self.session.working_directory, tree)
        return self.file.read_text()

    def bundles(self, tree: str) -> list[TreeBundle]:
        """What must be unpacked for a snapshot."""
        return self.store.read(lambda db: tree_bundles.chain(db, self.session.id, tree))


def machines(store: OpenStore, folder: Path) -> tuple[Machine, Machine]:
    """Two machines that share the store and the session's folder, and nothing else."""
    work = folder / "work"
    work.mkdir()
    session_id = SampleLibrary(store).session(working_directory=str(work))
    session = store.read(lambda db: sessions.get(db, session_id))
    return Machine(store, folder / "here", session), Machine(store, folder / "there", session)


async def test_every_snapshot_comes_back_elsewhere_and_chains_stay_short(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, there = machines(postgres_store, tmp_path)
    trees = [await here.save(f"text {number}") for number in range(tree_bundles.DEPTH_MAX + 2)]
    lengths = [len(here.bundles(tree)) for tree in trees]
    assert lengths == [*range(1, tree_bundles.DEPTH_MAX + 1), 1, 2]
    assert await there.restore(trees[4]) == "text 4"
    assert await there.restore(trees[-1]) == f"text {len(trees) - 1}"
    # A snapshot that the other machine takes builds on one that it has fetched.
    last = await there.save("there")
    assert there.bundles(last)[-1].basis == trees[-1]
    assert await here.restore(last) == "there"


async def test_a_snapshot_is_stored_once(postgres_store: OpenStore, tmp_path: Path) -> None:
    here, _ = machines(postgres_store, tmp_path)
    tree = await here.save("text")
    assert await here.shipping.store(here.session, tree) == Shipment()


async def test_with_a_file_of_sqlite_nothing_is_stored(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    here, _ = machines(sqlite_store, tmp_path)
    assert here.bundles(await here.save("text")) == []


async def test_what_is_too_large_stays_on_its_machine_and_says_so(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, _ = machines(postgres_store, tmp_path)
    here.mib_max = 1
    here.file.write_bytes(random.Random(1).randbytes(2 << 20))
    tree = here.trees.take(here.session.working_directory).tree
    shipment = await here.shipping.store(here.session, tree)
    assert "snapshot_mib_max = 1" in shipment.note
    assert shipment.blob is None


async def test_a_blob_store_that_does_not_answer_is_said_and_stops_nothing(
    postgres_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = machines(postgres_store, tmp_path)
    tree = here.trees.take(here.session.working_directory).tree

    def away(data: bytes, media_type: str) -> Blob:
        raise Unavailable("the object store does not answer")

    monkeypatch.setattr(postgres_store.blobs, "put", away)
    shipment = await here.shipping.store(here.session, tree)
    assert shipment.note == "only on this machine: the object store does not answer"


async def test_what_was_never_stored_or_is_gone_is_refused_in_words(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, there = machines(postgres_store, tmp_path)
    tree = await here.save("text")
    (bundle,) = here.bundles(tree)
    Path(postgres_store.home, "blobs", *_key(bundle.blob)).unlink()
    for missing in (tree, "0" * 40):
        with pytest.raises(Conflict, match="saved on another host, and the blob store has no"):
            await there.restore(missing)
    assert await here.restore(tree) == "text"


async def test_the_snapshot_of_another_session_is_not_given_to_who_knows_its_name(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, there = machines(postgres_store, tmp_path)
    tree = await here.save("secret")
    other = SampleLibrary(postgres_store).session(working_directory=str(tmp_path / "other"))
    there.session = postgres_store.read(lambda db: sessions.get(db, other))
    with pytest.raises(Conflict):
        await there.shipping.fetch(there.session, tree)


async def test_bundles_stay_while_a_checkpoint_needs_them_and_go_afterwards(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, there = machines(postgres_store, tmp_path)
    first, second = await here.save("one"), await here.save("two")
    named = [bundle.blob for bundle in here.bundles(second)]

    here.forget(first)
    # The second builds on the first.
    assert old_bundles.sweep(postgres_store, grace_ms=0) == 0
    assert await there.restore(second) == "two"
    here.forget(second)
    assert old_bundles.sweep(postgres_store) == 0, "young ones stay"
    assert old_bundles.sweep(postgres_store, grace_ms=-1) == 2
    assert here.bundles(second) == []
    for blob_id in named:
        assert postgres_store.read(lambda db, one=blob_id: blob_row(db, one)) is None  # type: ignore[misc]
        with pytest.raises(BlobMissing):
            postgres_store.blobs.read(blob_id)


async def test_a_purged_session_leaves_no_bundle_and_takes_none_of_others(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    here, there = machines(postgres_store, tmp_path)
    tree = await here.save("text")
    other = SampleLibrary(postgres_store).session(working_directory=here.session.working_directory)
    there.session = postgres_store.read(lambda db: sessions.get(db, other))
    assert await there.save("text") == tree
    (mine,), (theirs,) = here.bundles(tree), there.bundles(tree)
    assert mine.blob == theirs.blob
    removal.purge(postgres_store, here.session.id)
    assert here.bundles(tree) == []
    assert postgres_store.blobs.exists(theirs.blob)
    removal.purge(postgres_store, other)
    assert not postgres_store.blobs.exists(theirs.blob)


def _key(blob_id: str) -> list[str]:
    digest = blob_id.removeprefix("sha256:")
    return ["sha256", digest[:2], digest[2:4], digest]
