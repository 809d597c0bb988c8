"""When an index was last synchronised and what went wrong then: kept in its writer's lock file.

Not in the index: `meta` has one record, and a synchronisation that found nothing writes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ValidationError

ERROR_MAX = 500
STATE_BYTES_MAX = 4_096


class State(BaseModel):
    """What the last synchronisation left to know."""

    last_sync_at: int | None = None
    last_error: str | None = None


def read_state(path: Path) -> State:
    """Of the index at `path`; nothing when nobody ever synchronised it."""
    try:
        with path.with_name(f"{path.name}.lock").open("rb") as file:
            return State.model_validate_json(file.read(STATE_BYTES_MAX))
    except (OSError, ValidationError):
        return State()


def write_state(lock: int, state: State) -> None:
    """Keep it; `lock` is the file of the writer's lock, and held."""
    content = state.model_dump_json().encode("utf-8")
    os.pwrite(lock, content, 0)
    os.ftruncate(lock, len(content))
