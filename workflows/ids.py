"""Ids made by workflow code: the same again at every replay."""

from __future__ import annotations

from temporalio import workflow
from ulid import ULID


def fresh_id() -> str:
    """A ULID that a replay makes again."""
    return str(ULID.from_uuid(workflow.uuid7()))
