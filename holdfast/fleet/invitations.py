"""Invitations into a fleet: one machine, once, within an hour. A file for each, named by its hash.

Taking one removes its file first, and of several who try only one succeeds.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.domain.errors import Conflict, Unauthenticated
from holdfast.fleet.authority import Role, fingerprint, write

FOLDER = "invitations"
VALID_S = 3600.0
OPEN_MAX = 1000


@dataclass(frozen=True)
class Invitation:
    """Who may join, and as what."""

    machine_id: str
    roles: tuple[Role, ...]
    until: float


def invite(folder: Path, machine_id: str, roles: tuple[Role, ...]) -> str:
    """A token to join with. It names the authority too, so that whoever joins knows it."""
    kept = folder / FOLDER
    kept.mkdir(mode=0o700, exist_ok=True)
    sweep(folder)
    if sum(1 for _ in kept.iterdir()) >= OPEN_MAX:
        raise Conflict(f"{OPEN_MAX} invitations are open")
    secret = secrets.token_urlsafe(24)
    invitation = Invitation(machine_id, roles, time.time() + VALID_S)
    write(kept / _hash(secret), json.dumps(asdict(invitation)).encode())
    return f"{machine_id}.{secret}.{fingerprint(folder)}"


def parts(token: str) -> tuple[str, str, str]:
    """Machine id, secret and the authority's fingerprint."""
    machine_id, _, rest = token.strip().partition(".")
    secret, _, mark = rest.partition(".")
    if not (machine_id and secret and mark):
        raise Unauthenticated("that is not an invitation")
    return machine_id, secret, mark


def take(folder: Path, secret: str) -> Invitation:
    """Use an invitation up, or Unauthenticated: unknown, used, or too old."""
    path = folder / FOLDER / _hash(secret)
    try:
        raw = json.loads(path.read_bytes())
        path.unlink()
    except (OSError, ValueError):
        raise Unauthenticated("this invitation is unknown or was used") from None
    invitation = Invitation(raw["machine_id"], tuple(raw["roles"]), float(raw["until"]))
    if invitation.until < time.time():
        raise Unauthenticated("this invitation is too old")
    return invitation


def sweep(folder: Path) -> None:
    """Remove what nobody used in time."""
    for path in (folder / FOLDER).iterdir():
        try:
            old = path.stat().st_mtime < time.time() - VALID_S
        except FileNotFoundError:
            continue
        if old:
            path.unlink(missing_ok=True)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
