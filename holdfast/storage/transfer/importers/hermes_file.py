"""Reads a Hermes `state.db`: a private copy of it, never the file itself."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from holdfast.domain.errors import BadRequest, NotFound, PayloadTooLarge
from holdfast.storage.database.sqlite_driver import dbapi_module

SCHEMA_MIN = 11
FILE_BYTES_MAX = 4 * 1024**3
_MAGIC = b"SQLite format 3\x00"
_OWN_TABLES = {"schema_version", "sessions", "messages"}
# Those after `api_call_count` and after `codex_message_items` came with later schemas.
_SESSION_FIELDS = (
    "id source user_id model model_config system_prompt parent_session_id started_at ended_at"
    " end_reason title input_tokens output_tokens cache_read_tokens cache_write_tokens"
    " reasoning_tokens billing_provider billing_base_url billing_mode estimated_cost_usd"
    " actual_cost_usd cost_status cost_source pricing_version api_call_count"
    " system_prompt_hash title_source archived pinned"
)
_MESSAGE_FIELDS = (
    "id role content tool_call_id tool_calls tool_name timestamp token_count finish_reason"
    " reasoning reasoning_content reasoning_details codex_reasoning_items codex_message_items"
    " active compacted"
)
_USAGE_FIELDS = (
    "model billing_provider api_call_count input_tokens output_tokens cache_read_tokens"
    " cache_write_tokens reasoning_tokens estimated_cost_usd actual_cost_usd cost_status"
    " cost_source"
)
_FIELDS = {"sessions": _SESSION_FIELDS.split(), "messages": _MESSAGE_FIELDS.split()}
_IN_JSON = (
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
# What Hermes writes before content that is a list of parts and not a text.
_PARTS = ("\x00json:", "\x01json:")


class HermesFile:
    """The sessions and messages of one `state.db`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._check_version()
        self._columns = {name: self._known(name, fields) for name, fields in _FIELDS.items()}
        # Tables of later schemas: prompts that sessions share, and usage by model.
        self._columns["system_prompts"] = self._there("system_prompts", ["hash", "prompt"])
        usage = ["session_id", *_USAGE_FIELDS.split()]
        self._columns["session_model_usage"] = self._there("session_model_usage", usage)

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Every session with its system prompt: the oldest first, but parents before children."""
        for session_id in self._parents_first():
            row = next(self._rows("sessions", "WHERE id = ?", (session_id,)))
            if row.get("system_prompt") is None and row.get("system_prompt_hash"):
                row["system_prompt"] = self._prompt(row["system_prompt_hash"])
            yield row

    def messages(self, session_id: str) -> Iterator[dict[str, Any]]:
        """The session's messages in order; what is JSON in the file is parsed."""
        for row in self._rows("messages", "WHERE session_id = ? ORDER BY id", (session_id,)):
            row["tool_calls"] = _calls(row.get("tool_calls"))
            row["content"] = _text(row.get("content"))
            row.update({name: _parsed(row.get(name)) for name in _IN_JSON})
            yield row

    def started_at(self, session_id: str) -> Any:
        """When a session began; None when the file does not have it."""
        query = "SELECT started_at FROM sessions WHERE id = ?"
        found = self._connection.execute(query, (session_id,)).fetchone()
        return None if found is None else found[0]

    def usage(self, session_id: str) -> list[dict[str, Any]]:
        """What each model took of the session's usage; nothing in a file that does not say."""
        if "session_id" not in self._columns["session_model_usage"]:
            return []
        rest = "WHERE session_id = ? ORDER BY model"
        return list(self._rows("session_model_usage", rest, (session_id,)))

    def _parents_first(self) -> list[Any]:
        """Ids in order of age, each after its parent; a clock that went back changes the ages."""
        has_parents = "parent_session_id" in self._columns["sessions"]
        column = "parent_session_id" if has_parents else "NULL"
        query = f"SELECT id, {column} FROM sessions ORDER BY started_at, id"  # noqa: S608
        parents = dict(self._connection.execute(query).fetchall())
        ordered: dict[Any, None] = {}
        for session_id in parents:
            chain: dict[Any, None] = {}
            one = session_id
            while one in parents and one not in ordered and one not in chain:
                chain[one] = None
                one = parents[one]
            ordered.update(dict.fromkeys(reversed(chain)))
        return list(ordered)

    def _prompt(self, digest: str) -> str | None:
        if len(self._columns["system_prompts"]) != 2:
            return None
        found = next(self._rows("system_prompts", "WHERE hash = ?", (digest,)), None)
        return None if found is None else found["prompt"]

    def _rows(self, table: str, rest: str, parameters: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        names = self._columns[table]
        query = f"SELECT {', '.join(names)} FROM {table} {rest}"  # noqa: S608 - names are our own
        for row in self._connection.execute(query, parameters):
            yield dict(zip(names, row, strict=True))

    def _check_version(self) -> None:
        row = self._connection.execute("SELECT version FROM schema_version LIMIT 1").fetchone()
        version = int(row[0]) if row else 0
        if version < SCHEMA_MIN:
            raise BadRequest(
                f"this state.db has schema {version}; let Hermes bring it to {SCHEMA_MIN} first"
            )

    def _known(self, table: str, wanted: list[str]) -> list[str]:
        there = self._there(table, wanted)
        if "id" not in there:
            raise BadRequest(f"this state.db has no table {table}")
        return there

    def _there(self, table: str, wanted: list[str]) -> list[str]:
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        there = {row[0] for row in rows}
        return [name for name in wanted if name in there]


def is_state_db(path: Path, head: bytes) -> bool:
    """Whether the file has the tables of Hermes; only its schema is read, whatever its size."""
    if not head.startswith(_MAGIC):
        return False
    module = dbapi_module()
    try:
        # Immutable: neither locks nor files are made beside it, and its log is not looked at.
        address = f"{path.absolute().as_uri()}?immutable=1"
        with closing(module.connect(address, uri=True)) as connection:
            tables = _tables(connection)
        if not tables and path.with_name(f"{path.name}-wal").exists():
            # So young that everything is in the log; the file itself is a page or two then.
            with _private_copy(path) as connection:
                tables = _tables(connection)
    except module.DatabaseError:
        return False
    return tables >= _OWN_TABLES


@contextmanager
def open_copy(path: Path) -> Iterator[HermesFile]:
    """A copy of the file with its write-ahead log, opened for reading only, then thrown away."""
    _check(path)
    try:
        with _private_copy(path) as connection:
            yield HermesFile(connection)
    except dbapi_module().DatabaseError as error:
        raise BadRequest(f"this is not a state.db of Hermes: {error}") from error


@contextmanager
def _private_copy(path: Path) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="holdfast-hermes-") as folder:
        copy = Path(folder) / "state.db"
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.is_file():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        connection = dbapi_module().connect(str(copy), isolation_level=None)
        # A byte that is no UTF-8 must not cost the other sessions their import.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA trusted_schema=OFF")
            yield connection
        finally:
            connection.close()


def _tables(connection: Any) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {str(row[0]) for row in rows}


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


def _text(raw: Any) -> str:
    """The words of a message; a part that is no text is named."""
    text = raw if isinstance(raw, str) else str(raw or "")
    if not text.startswith(_PARTS):
        return text
    given = _parsed(text[len(_PARTS[0]) :])
    parts = given if isinstance(given, list) else [given]
    return "\n".join(_part(part) for part in parts)


def _part(part: Any) -> str:
    if isinstance(part, dict):
        words = part.get("text")
        return words if isinstance(words, str) else f"[{part.get('type') or 'attachment'}]"
    return str(part)


def _parsed(raw: Any) -> Any:
    """JSON as a value; what is none stays as it is."""
    try:
        return json.loads(raw) if isinstance(raw, str) and raw else raw
    except (ValueError, RecursionError):
        return raw


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
