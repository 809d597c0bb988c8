"""Model calls as the wire shows them: their facts, and the request with every message id."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import select, tuple_
from typing_extensions import TypedDict

from holdfast.storage.database.blobs import BlobMissing, BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call
from holdfast.storage.sessions import requests

_calls = table(Call)
_place = tuple_(_calls.c.created_at, _calls.c.id)


class StoredCall(TypedDict):
    """The facts of a call: who asked which model, from which head, and what it used."""

    id: str
    session_id: str
    run_id: str | None
    head: str | None
    step: int
    attempt: int
    agent_path: str
    type: str
    status: str
    request_ref: str | None
    response_ref: str | None
    message_id: str | None
    error: dict[str, Any] | None
    model: str | None
    provider: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    created_at: int
    completed_at: int | None


class CallShown(StoredCall):
    """A model call."""

    request: dict[str, Any] | None


def of_run(
    db: Db, blobs: BlobStore, run_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> list[CallShown]:
    """The run's calls, oldest first, those behind the place `after` of time and id."""
    rows = select(*(_calls.c[name] for name in StoredCall.__annotations__))
    rows = rows.where(_calls.c.run_id == run_id)
    if after is not None:
        rows = rows.where(_place > after)
    rows = rows.order_by(_calls.c.created_at, _calls.c.id).limit(limit)
    stored = [cast(StoredCall, dict(row._mapping)) for row in db.connection().execute(rows)]
    return [{**call, "request": _request(db, blobs, call["request_ref"])} for call in stored]


def _request(db: Db, blobs: BlobStore, reference: str | None) -> dict[str, Any] | None:
    """The descriptor with its ranges written out; None for a call that failed before it had one."""
    if reference is None:
        return None
    try:
        request: dict[str, Any] = blobs.read_json(reference)
    except BlobMissing:
        return None
    named = request.get("message_ids", [])
    if named and isinstance(named[0], list):  # older builds stored ids, not ranges
        request["message_ids"] = requests.ids(db, named)
    return request
