"""The rows of one document: its file, its chunks, their words and vectors; all or none of them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.domain.clock import now_ms
from holdfast.domain.memory import Document
from holdfast.memory import schema
from holdfast.memory.chunking import Chunk
from holdfast.memory.connection import Connection, has_vectors
from holdfast.memory.words import indexed

NO_VECTOR = "[]"


class Embedded(NamedTuple):
    """A chunk and its vector as JSON, which is empty when only words are indexed."""

    chunk: Chunk
    vector: str


def put(connection: Connection, document: Document, found: list[Embedded], model: str) -> None:
    """Replace whatever the index has of a document. The caller has begun a transaction."""
    drop(connection, document.path)
    # A long line may have equal parts: equal chunks are one.
    rows = {_chunk_id(document, one.chunk, model): one for one in found}
    words, vectors = schema.has_words(connection), _has_vector_table(connection)
    for chunk_id, (chunk, vector) in rows.items():
        place = (document.path, document.source, chunk.start_line, chunk.end_line)
        added = connection.execute(
            "INSERT INTO chunks (id, path, source, start_line, end_line, hash, model, text,"
            " embedding, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (chunk_id, *place, chunk.hash, model, chunk.text, vector, now_ms()),
        )
        if words:
            _put_words(connection, added.lastrowid, chunk_id, model, chunk.text, place)
        if vectors and vector != NO_VECTOR:
            _put_vector(connection, chunk_id, vector)
    connection.execute(
        "INSERT OR REPLACE INTO files (path, source, hash, mtime, size) VALUES (?, ?, ?, ?, ?)",
        (document.path, document.source, document.hash, document.mtime_ms, document.size),
    )


def drop(connection: Connection, path: str) -> None:
    """Forget a document everywhere (O-028). The caller has begun a transaction."""
    asked = "SELECT rowid, id FROM chunks WHERE path = ?"
    found = connection.execute(asked, (path,)).fetchall()
    if found and schema.has_words(connection):
        _drop_words(connection, path, found)
    if found and _has_vector_table(connection):
        connection.executemany("DELETE FROM chunks_vec WHERE id = ?", [(one[1],) for one in found])
    connection.execute("DELETE FROM chunks WHERE path = ?", (path,))
    connection.execute("DELETE FROM files WHERE path = ?", (path,))


def clear(connection: Connection) -> None:
    """Forget everything but the cache."""
    for statement in ("DELETE FROM meta", "DELETE FROM files", "DELETE FROM chunks"):
        connection.execute(statement)
    if schema.has_words(connection):
        connection.execute("DELETE FROM chunks_fts")
    if _has_vector_table(connection):
        connection.execute("DROP TABLE chunks_vec")


def reconcile(connection: Connection, dims: int | None) -> None:
    """Fill the words and vectors that a build without FTS5 or without sqlite-vec left out."""
    if schema.has_words(connection):
        missing = connection.execute(
            "SELECT rowid, id, model, text, path, source, start_line, end_line FROM chunks"
            " WHERE rowid NOT IN (SELECT rowid FROM chunks_fts)"
        ).fetchall()
        for rowid, chunk_id, model, text, *place in missing:
            _put_words(connection, rowid, chunk_id, model, text, place)
    if dims is not None and has_vectors(connection):
        schema.ensure_vectors(connection, dims)
        connection.execute("DELETE FROM chunks_vec WHERE id NOT IN (SELECT id FROM chunks)")
        missing = connection.execute(
            "SELECT id, embedding FROM chunks"
            " WHERE embedding <> '[]' AND id NOT IN (SELECT id FROM chunks_vec)"
        ).fetchall()
        for chunk_id, vector in missing:
            _put_vector(connection, chunk_id, vector)


def as_json(vector: Sequence[float]) -> str:
    """A vector as text, as exact as its four bytes a number (O-009)."""
    return f"[{','.join(['%.8g'] * len(vector))}]" % tuple(vector)


def dims_of(vector: str) -> int:
    """How long a vector is that is written as JSON."""
    return vector.count(",") + 1


def as_bytes(vector: Sequence[float]) -> bytes:
    """A vector as sqlite-vec reads it: four bytes a number."""
    return array("f", vector).tobytes()


def _chunk_id(document: Document, chunk: Chunk, model: str) -> str:
    place = f"{document.source}:{document.path}:{chunk.start_line}:{chunk.end_line}"
    return hashlib.sha256(f"{place}:{chunk.hash}:{model}".encode()).hexdigest()


def _put_words(
    connection: Connection,
    rowid: int,
    chunk_id: str,
    model: str,
    text: str,
    place: Sequence[object],
) -> None:
    connection.execute(
        "INSERT INTO chunks_fts (rowid, text, id, model, path, source, start_line, end_line)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (rowid, indexed(text), chunk_id, model, *place),
    )


def _put_vector(connection: Connection, chunk_id: str, vector: str) -> None:
    # sqlite-vec reads the JSON itself, and keeps four bytes a number.
    connection.execute("INSERT INTO chunks_vec (id, embedding) VALUES (?, ?)", (chunk_id, vector))


def _drop_words(connection: Connection, path: str, found: list[tuple[int, str]]) -> None:
    asked = "DELETE FROM chunks_fts WHERE rowid = ? AND id = ?"
    gone = connection.executemany(asked, found).rowcount
    if gone != len(found):
        # A VACUUM by somebody else may give `chunks` other row ids: then look at every row.
        connection.execute("DELETE FROM chunks_fts WHERE path = ?", (path,))


def _has_vector_table(connection: Connection) -> bool:
    return schema.vector_dims(connection) is not None and has_vectors(connection)
