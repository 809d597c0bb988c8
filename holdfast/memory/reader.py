"""Reading an index that may be swapped at any moment: the old or the new, never a broken one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.memory import locks, schema
from holdfast.memory.connection import Connection, Driver, connect, has_vectors
from holdfast.memory.engines import SqliteVec, VectorEngine
from holdfast.memory.swap import restore


class Reader:
    """A connection that is opened again when another file took its place. Thread-safe.

    The file keeps its place while somebody reads it (`locks.reading`). So it is enough to look at
    the beginning of each read whether it is still the file that we have open, and as we have it
    open, no other file can have its number.
    """

    def __init__(self, path: Path, *, vectors: bool) -> None:
        self._path = path
        self._vectors = vectors
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None
        self._engine: VectorEngine | None = None

    @contextmanager
    def snapshot(self) -> Iterator[Connection | None]:
        """A connection with one unchanging view of the index; None when there is no index."""
        with self._mutex:
            if not self._is_there():
                self._close()
                yield None
                return
            with locks.reading(self._path):
                connection = self._current()
                if connection is None:
                    yield None
                    return
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("ROLLBACK")

    def engine(self, connection: Connection, model: str) -> VectorEngine:
        """Who compares vectors: sqlite-vec where it is loaded and filled, else numpy (O-033)."""
        if has_vectors(connection) and schema.vector_dims(connection) is not None:
            return SqliteVec(connection)
        if self._engine is None:
            # numpy takes a tenth of a second to import: only who needs it waits for it.
            from holdfast.memory.matrix import Matrix  # noqa: PLC0415

            self._engine = Matrix()
        self._engine.refresh(connection, model)
        return self._engine

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._close()

    def _is_there(self) -> bool:
        restore(self._path)
        return self._path.exists()

    def _current(self) -> Connection | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._close()
            return None
        if self._connection is None or self._file != (status.st_dev, status.st_ino):
            self._close()
            self._connection = connect(self._path, vectors=self._vectors)
            self._file = (status.st_dev, status.st_ino)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = self._engine = None


def is_damaged(error: Exception) -> bool:
    """Whether SQLite says that the file is no database, not only busy or full."""
    kind = isinstance(error, Driver.DatabaseError) and not isinstance(
        error, Driver.OperationalError
    )
    return kind or "malformed" in str(error)
