"""Who a terminal host is: an id that lasts as long as its state, and an epoch for each start."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.ids import new_id

FILE = "host.json"
ID_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """One life of one host. Epochs only grow, so what an older one began has ended."""

    id: str
    epoch: int


def known(state_dir: Path, *, first_id: str | None = None) -> Identity:
    """Who the host of this state is, without a new epoch; a host that never was gets its id."""
    found = _read(state_dir)
    if found is None:
        found = Identity(first_id or new_id(), 0)
        _write(state_dir, found)
    return found


def host_of(state_dir: Path) -> str | None:
    """The id of the host of this state, or None when there never was one."""
    found = _read(state_dir)
    return None if found is None else found.id


def begin(state_dir: Path, *, first_id: str | None = None) -> Identity:
    """The identity of a host that starts now. Only the holder of the state's lock may ask."""
    before = known(state_dir, first_id=first_id)
    begun = Identity(before.id, max(before.epoch + 1, time.time_ns() // 1_000_000))
    _write(state_dir, begun)
    return begun


def _read(state_dir: Path) -> Identity | None:
    try:
        found = json.loads((state_dir / FILE).read_bytes())
        host_id, epoch = found["id"], int(found["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    valid = isinstance(host_id, str) and 0 < len(host_id) <= ID_CHARS_MAX
    return Identity(host_id, epoch) if valid else None


def _write(state_dir: Path, identity: Identity) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = state_dir / f"{FILE}.{os.getpid()}.draft"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(json.dumps({"id": identity.id, "epoch": identity.epoch}).encode())
        out.flush()
        os.fsync(out.fileno())
    draft.rename(state_dir / FILE)
