"""Embeddings that were paid for once, by the hash of their text (O-013 to O-015)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from holdfast.domain.clock import now_ms
from holdfast.memory.connection import Connection, Driver
from holdfast.memory.embedders.embedding import Identity
from holdfast.memory.rows import dims_of

Vectors = dict[str, str]  # as JSON, by the hash of their text


def look_up(
    connection: Connection, identity: Identity, hashes: Iterable[str], dims: int | None
) -> Vectors:
    """The vectors that are known, of `dims` dimensions if that is given."""
    found = connection.execute(
        "SELECT hash, embedding FROM embedding_cache"
        " WHERE provider = ? AND model = ? AND provider_key = ?"
        " AND hash IN (SELECT value FROM json_each(?)) AND (dims = ? OR ? IS NULL)",
        (*identity, json.dumps(list(hashes)), dims, dims),
    )
    return dict(found.fetchall())


def keep(connection: Connection, identity: Identity, vectors: Vectors) -> None:
    """Remember vectors. The caller has begun a transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO embedding_cache"
        " (provider, model, provider_key, hash, embedding, dims, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (*identity, text_hash, vector, dims_of(vector), now_ms())
            for text_hash, vector in vectors.items()
        ],
    )


def seed(connection: Connection, original: Path) -> bool:
    """Copy what another file remembers; False when it cannot be read."""
    try:
        connection.execute("ATTACH ? AS original", (f"{original.absolute().as_uri()}?mode=rw",))
    except Driver.DatabaseError:
        return False
    try:
        connection.execute(
            "INSERT OR IGNORE INTO embedding_cache SELECT provider, model, provider_key, hash,"
            " embedding, dims, updated_at FROM original.embedding_cache"
        )
    except Driver.DatabaseError:
        return False
    else:
        return True
    finally:
        connection.execute("DETACH original")


def prune(connection: Connection, entries_max: int) -> int:
    """Forget the oldest beyond `entries_max`; how many."""
    [count] = connection.execute("SELECT count(*) FROM embedding_cache").fetchone()
    if count <= entries_max:
        return 0
    connection.execute(
        "DELETE FROM embedding_cache WHERE rowid IN"
        " (SELECT rowid FROM embedding_cache ORDER BY updated_at, rowid LIMIT ?)",
        (count - entries_max,),
    )
    return int(count - entries_max)
