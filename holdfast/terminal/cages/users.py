"""The operating system's user that an operator's programs run as, where the host is root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from holdfast.terminal.errors import SpawnFailed


@dataclass(frozen=True, slots=True)
class OsUser:
    """Who a process is for the kernel."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def become(self) -> None:
        """Be this user for good: real, effective and saved, and every group."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


def user_named(name: str) -> OsUser:
    """The user of that name; SpawnFailed when there is none, or it cannot or must not be used."""
    if os.geteuid() != 0:
        raise SpawnFailed(f"programs cannot run as {name}: only a server of root can change users")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise SpawnFailed(f"there is no user {name} on this machine") from None
    if entry.pw_uid == 0:
        raise SpawnFailed(f"programs cannot run as {name}: that is root")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return OsUser(name, entry.pw_uid, entry.pw_gid, tuple(group for group in groups if group))


def check_folder(user: OsUser, descriptor: int, path: Path) -> None:
    """Refuse a folder that the user cannot reach by its path, or cannot write."""
    child = os.fork()
    if child == 0:
        answer = 2
        try:
            user.become()
            reached = os.path.samestat(path.stat(), os.fstat(descriptor))
            answer = 0 if reached and os.access(path, os.W_OK | os.X_OK) else 1
        finally:
            os._exit(answer)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SpawnFailed(
            f"{path} cannot be written by {user.name}, who runs the programs of this operator: "
            f"give it to that user (chown -R {user.name} {path}) and let it pass the folders above"
        )
