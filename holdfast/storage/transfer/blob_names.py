"""Which blobs a session names: by the columns that hold references, never by what a text says.

A message, a tool's output or an event may hold any words, the name of another operator's blob too.
Such words are no reference: they are neither followed into an export nor kept from a purge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.storage.database.blobs import BlobMissing, BlobStore

BLOBS_MAX = 100_000
# The columns of a collection that name a blob each.
COLUMNS = {
    "calls": ("request_ref", "response_ref"),
    "tool_calls": ("output_ref",),
    "heads": ("state_ref",),
    "transcripts": ("transcript",),
}
Rows = Mapping[str, list[dict[str, Any]]]
_NAME = re.compile(r"sha256:[0-9a-f]{64}")
_NAME_IN_BYTES = re.compile(rb"sha256:[0-9a-f]{64}")


def is_name(value: object) -> bool:
    """Whether a value can name a blob at all."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def in_rows(rows: Rows) -> set[str]:
    """The blobs that these rows name themselves."""
    named = {
        row.get(column)
        for name, columns in COLUMNS.items()
        for row in rows.get(name) or []
        for column in columns
    }
    for row in rows.get("checkpoints") or []:
        named |= in_prompts(row.get("prompts"))
    return {name for name in named if isinstance(name, str) and is_name(name)}


def in_prompts(prompts: object) -> set[str]:
    """The texts of prompts, by agent."""
    values = prompts.values() if isinstance(prompts, dict) else ()
    return {value for value in values if is_name(value)}


def in_root(data: bytes) -> set[str]:
    """The blobs that a head's state root names: large deltas, and prompts. No root names none."""
    root = parsed_root(data)
    if root is None:
        return set()
    parts = root["collections"].values()
    deltas = {part.get("delta_ref") for part in parts if isinstance(part, dict)}
    return {str(name) for name in deltas if is_name(name)} | in_prompts(root.get("prompts"))


def mentioned(data: bytes) -> set[str]:
    """Every name of a blob that occurs in these bytes, whatever they are."""
    return {found.decode("ascii") for found in _NAME_IN_BYTES.findall(data)}


def parsed_root(data: bytes) -> dict[str, Any] | None:
    """The state root in these bytes, or None when they are something else."""
    if data[:1] != b"{" or b'"collections"' not in data:
        return None
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return None
    known = isinstance(root, dict) and isinstance(root.get("collections"), dict)
    return root if known else None


def walk(blobs: BlobStore, named: set[str], roots: set[str]) -> Iterator[tuple[str, bytes]]:
    """Each named blob once, and what the state roots among them name; lost bytes are left out."""
    pending = named | roots
    seen: set[str] = set()
    while pending and len(seen) < BLOBS_MAX:
        blob_id = pending.pop()
        seen.add(blob_id)
        try:
            data = blobs.read(blob_id)
        except BlobMissing:
            continue
        yield blob_id, data
        if blob_id in roots:
            pending |= in_root(data) - seen


def roots_of(rows: Rows) -> set[str]:
    """The state roots of these rows' heads."""
    return {row["state_ref"] for row in rows.get("heads") or [] if is_name(row.get("state_ref"))}
