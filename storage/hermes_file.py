"""Reads a Hermes `state.db`: a private copy of it, never the file itself."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domain.errors import BadRequest, NotFound, PayloadTooLarge
from storage.sqlite_driver import dbapi_module

SCHEMA_MIN = 11
FILE_BYTES_MAX = 4 * 1024**3
_MAGIC = b"SQLite format 3\x00"
_SESSION_FIELDS = (
    "id source model system_prompt parent_session_id started_at ended_at end_reason title"
    " input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens"
    " billing_provider estimated_cost_usd actual_cost_usd cost_status cost_source api_call_count"
)
_MESSAGE_FIELDS = (
    "id role content tool_call_id tool_calls tool_name timestamp token_count finish_reason"
    " reasoning"
)
_FIELDS = {"sessions": _SESSION_FIELDS.split(), "messages": _MESSAGE_FIELDS.split()}


class HermesFile:
    """The sessions and messages of one `state.db`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.version = self._version()
        self._columns = {name: self._known(name, fields) for name, fields in _FIELDS.items()}

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Every session, parents before their children."""
        yield from self._rows("sessions", "ORDER BY started_at, id", ())

    def messages(self, session_id: str) -> Iterator[dict[str, Any]]:
        """The session's messages in order; `tool_calls` is parsed."""
        for row in self._rows("messages", "WHERE session_id = ? ORDER BY id", (session_id,)):
            row["tool_calls"] = _calls(row.get("tool_calls"))
            yield row

    def _rows(self, table: str, rest: str, parameters: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        names = self._columns[table]
        query = f"SELECT {', '.join(names)} FROM {table} {rest}"  # noqa: S608 - names are our own
        for row in self._connection.execute(query, parameters):
            yield dict(zip(names, row, strict=True))

    def _version(self) -> int:
        row = self._connection.execute("SELECT version FROM schema_version LIMIT 1").fetchone()
        version = int(row[0]) if row else 0
        if version < SCHEMA_MIN:
            raise BadRequest(
                f"this state.db has schema {version}; let Hermes bring it to {SCHEMA_MIN} first"
            )
        return version

    def _known(self, table: str, wanted: list[str]) -> list[str]:
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        there = {row[0] for row in rows}
        if not {"id"} <= there:
            raise BadRequest(f"this state.db has no table {table}")
        return [name for name in wanted if name in there]


@contextmanager
def open_copy(path: Path) -> Iterator[HermesFile]:
    """A copy of the file with its write-ahead log, opened for reading only, then thrown away."""
    _check(path)
    module = dbapi_module()
    with tempfile.TemporaryDirectory(prefix="holdfast-hermes-") as folder:
        copy = Path(folder) / "state.db"
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.is_file():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        connection = module.connect(str(copy), isolation_level=None)
        try:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA trusted_schema=OFF")
            yield HermesFile(connection)
        except module.DatabaseError as error:
            raise BadRequest(f"this is not a state.db of Hermes: {error}") from error
        finally:
            connection.close()


def _check(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise NotFound(f"cannot read {path.name}: {error.strerror}") from None
    if size > FILE_BYTES_MAX:
        raise PayloadTooLarge(f"a state.db has at most {FILE_BYTES_MAX // 1024**3} GiB")
    if start != _MAGIC:
        raise BadRequest("this is not a SQLite file")


def _calls(raw: str | None) -> list[dict[str, Any]]:
    """OpenAI's shape turned into ours: id, name, arguments."""
    try:
        given = json.loads(raw) if raw else []
    except ValueError:
        return []
    calls = []
    for call in given if isinstance(given, list) else []:
        if isinstance(call, dict):
            nested = call.get("function")
            function: dict[str, Any] = nested if isinstance(nested, dict) else call
            name = str(function.get("name") or "tool")
            arguments = _arguments(function.get("arguments"))
            calls.append({"id": str(call.get("id") or ""), "name": name, "arguments": arguments})
    return calls


def _arguments(raw: Any) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    try:
        parsed = json.loads(raw) if isinstance(raw, str) else {}
    except ValueError:
        return {"raw": raw}
    return parsed if isinstance(parsed, dict) else {"raw": raw}
