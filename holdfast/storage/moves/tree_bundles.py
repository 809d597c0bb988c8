"""Which bundles hold the files of a session's snapshots, and in which order they are unpacked.

A bundle is named by its session: who knows the id of a snapshot only, gets no files by it.
"""

from __future__ import annotations

from sqlalchemy import delete, select

from holdfast.domain.clock import now_ms
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, made, table
from holdfast.storage.database.tables_history import Blob, Checkpoint, TreeBundle

# After so many steps a bundle holds everything again, so a restore unpacks no more than these.
DEPTH_MAX = 10
IDS_PER_STATEMENT = 500
_bundles, _checkpoints = table(TreeBundle), table(Checkpoint)


def note(db: Db, session_id: str, tree: str, blob: Blob, *, basis: str | None) -> bool:
    """The bundle is in the blob store; False when its basis has gone meanwhile.

    A repeat changes nothing.
    """
    before = find(db, session_id, basis) if basis is not None else None
    if basis is not None and before is None:
        return False
    depth = 0 if before is None else before.depth + 1
    row = TreeBundle(
        session_id=session_id,
        tree=tree,
        basis=basis,
        depth=depth,
        blob=blobs.commit(db, blob),
        size=blob.size,
        created_at=now_ms(),
    )
    insert_once(db, TreeBundle, row.model_dump())
    return True


def find(db: Db, session_id: str, tree: str) -> TreeBundle | None:
    """The bundle of a snapshot, or None."""
    mine = _bundles.c.session_id == session_id, _bundles.c.tree == tree
    row = db.connection().execute(select(_bundles).where(*mine)).first()
    return None if row is None else made(TreeBundle, row)


def basis_for_next(db: Db, session_id: str) -> str | None:
    """The snapshot that the next bundle may build on."""
    rows = select(_bundles).where(_bundles.c.session_id == session_id)
    newest = rows.order_by(_bundles.c.created_at.desc(), _bundles.c.depth.desc()).limit(1)
    row = db.connection().execute(newest).first()
    return None if row is None or row.depth + 1 >= DEPTH_MAX else str(row.tree)


def chain(db: Db, session_id: str, tree: str) -> list[TreeBundle]:
    """The bundles that make up a snapshot, the first to unpack first; none when one is missing."""
    found: list[TreeBundle] = []
    wanted: str | None = tree
    while wanted is not None and len(found) < DEPTH_MAX:
        bundle = find(db, session_id, wanted)
        if bundle is None:
            return []
        found.append(bundle)
        wanted = bundle.basis
    return [] if wanted is not None else found[::-1]


def sessions_after(db: Db, session_id: str, *, limit: int = IDS_PER_STATEMENT) -> list[str]:
    """The next sessions that have bundles, by id."""
    rows = select(_bundles.c.session_id).distinct().where(_bundles.c.session_id > session_id)
    found = db.connection().scalars(rows.order_by(_bundles.c.session_id).limit(limit))
    return [str(one) for one in found]


def drop_unused(db: Db, session_id: str, *, before_ms: int) -> set[str]:
    """Forget old bundles that no checkpoint of the session needs; the blobs they named."""
    rows = db.connection().execute(select(_bundles).where(_bundles.c.session_id == session_id))
    known = {str(row.tree): row for row in rows}
    kept = {tree for tree, row in known.items() if row.created_at >= before_ms}
    waiting = list(kept | (_in_use(db, session_id) & known.keys()))
    needed: set[str] = set()
    while waiting:
        tree = waiting.pop()
        if tree in needed or tree not in known:
            continue
        needed.add(tree)
        if known[tree].basis is not None:
            waiting.append(known[tree].basis)
    unused = known.keys() - needed
    _delete(db, session_id, unused)
    return {str(known[tree].blob) for tree in unused}


def drop_all(db: Db, session_id: str) -> set[str]:
    """Forget every bundle of the session; the blobs they named."""
    mine = _bundles.c.session_id == session_id
    named = {str(one) for one in db.connection().scalars(select(_bundles.c.blob).where(mine))}
    db.connection().execute(delete(_bundles).where(mine))
    return named


def _in_use(db: Db, session_id: str) -> set[str]:
    """The snapshots that a checkpoint of the session can bring back."""
    mine = _checkpoints.c.session_id == session_id
    columns = (_checkpoints.c.tree, _checkpoints.c.undo_tree)
    found = (db.connection().scalars(select(column).where(mine)) for column in columns)
    return {str(tree) for trees in found for tree in trees if tree}


def _delete(db: Db, session_id: str, trees: set[str]) -> None:
    ids = sorted(trees)
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        chunk = _bundles.c.tree.in_(ids[start : start + IDS_PER_STATEMENT])
        db.connection().execute(delete(_bundles).where(_bundles.c.session_id == session_id, chunk))
