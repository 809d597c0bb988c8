"""Snapshots as git bundles: how they leave one machine and come to another."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from activities.trees.shadow_git import GitTrouble, ShadowGit, TooMany

_NAME = re.compile(r"[0-9a-f]{40}")
_CARRIER = "refs/carrier"
# Quick and in little memory; the files are compressed, and what did not change is left out.
_PACK = ("-c", "pack.threads=1", "-c", "pack.window=0")


class TooLarge(Exception):
    """A bundle would take more than the limit."""


@dataclass(frozen=True)
class Bundle:
    """The bytes, and the snapshot that must be there before them."""

    data: bytes
    basis: str | None


def bundled(git: ShadowGit, snapshot: str, *, basis: str | None, bytes_max: int) -> Bundle:
    """What the snapshot has and the basis has not; everything when the basis is not here."""
    if not git.has_snapshot(_checked(snapshot)):
        raise GitTrouble(f"there is no snapshot {snapshot}")
    if basis == snapshot or (basis is not None and not git.has_snapshot(_checked(basis))):
        basis = None
    try:
        if basis is None:
            return Bundle(_everything(git, snapshot, bytes_max), None)
        return Bundle(_difference(git, snapshot, basis, bytes_max), basis)
    except TooMany:
        raise TooLarge from None


def unbundled(git: ShadowGit, snapshot: str, data: bytes) -> None:
    """Unpack one; the snapshot counts as here when all of it is."""
    if git.has_snapshot(_checked(snapshot)):
        return
    draft = git.folder / "incoming.bundle"
    draft.unlink(missing_ok=True)
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(data)
        git.run("bundle", "unbundle", str(draft))
    finally:
        draft.unlink(missing_ok=True)
    git.run("rev-list", "--objects", "--quiet", snapshot)
    git.keep_snapshot(snapshot)


def _everything(git: ShadowGit, snapshot: str, bytes_max: int) -> bytes:
    name = f"refs/snapshots/{snapshot}"
    return git.piped(*_PACK, "bundle", "create", "-q", "-", name, bytes_max=bytes_max)


def _difference(git: ShadowGit, snapshot: str, basis: str, bytes_max: int) -> bytes:
    """Snapshots have no parents, so a commit with both for parents is what git compares."""
    parents = ("-p", basis, "-p", snapshot)
    carrier = git.run("commit-tree", f"{snapshot}^{{tree}}", *parents, stdin=b"carrier")
    git.run("update-ref", _CARRIER, carrier.decode().strip())
    create = ("bundle", "create", "-q", "-", _CARRIER, f"^{basis}")
    try:
        return git.piped(*_PACK, *create, bytes_max=bytes_max)
    finally:
        git.run("update-ref", "-d", _CARRIER)


def _checked(snapshot: str) -> str:
    if not _NAME.fullmatch(snapshot):
        raise GitTrouble("that is no name of a snapshot")
    return snapshot
