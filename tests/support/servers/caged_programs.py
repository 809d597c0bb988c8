"""Programs in cages of a test's own terminal host, and hosts in harder surroundings."""

import os
import pwd
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.terminal.client import Exit, TerminalClient
from tests.support.servers.terminal_hosts import TestHost, collect

SYSTEM_PYTHON = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
REPOSITORY = Path(__file__).parents[3]
# Puts the host, and all it runs, under our own filter: as in a container without namespaces.
WITHOUT_NAMESPACES = """
import os, sys
from holdfast.terminal.cages import seccomp
seccomp.install(seccomp.filter_bytes())
os.execv(sys.argv[1], sys.argv[1:])
"""
# And on a kernel without Landlock: nothing is left to make a cage of.
WITHOUT_CAGES = """
import os, sys
from holdfast.terminal.cages import seccomp
seccomp.NOT_PERMITTED["landlock_create_ruleset"] = (444, 444)
seccomp.install(seccomp.filter_bytes())
os.execv(sys.argv[1], sys.argv[1:])
"""
AS_NOBODY = """
import os, pwd, sys
user = pwd.getpwnam("nobody")
os.setgroups([]); os.setresgid(*[user.pw_gid] * 3); os.setresuid(*[user.pw_uid] * 3)
os.execv(sys.argv[1], sys.argv[1:])
"""


async def run_caged(
    host: TestHost, client: TerminalClient, command: str, **fields: Any
) -> tuple[Exit, str]:
    """The end and the output of a command in a cage (`cage={}` unless given)."""
    key = new_id()
    await client.spawn(host.request(key, command, **{"cage": {}, **fields}))
    output = (await collect(client, key)).decode(errors="replace")
    return await client.wait(key), output


def python(code: str) -> str:
    """A command that runs Python code inside of a cage; it has no double quotes and no dollars."""
    return f'python3 -I -c "{code}"'


def before(code: str, interpreter: str = sys.executable) -> list[str]:
    """The beginning of a command line that runs Python code before the rest."""
    return [interpreter, "-c", code]


def run_as_nobody(host: TestHost) -> None:
    """Let a host that is not started yet run as `nobody`, and own its folders."""
    user = pwd.getpwnam("nobody")
    for path in (host.folder, *host.folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    python = Path(sys.executable).resolve()
    if any(not folder.stat().st_mode & 0o001 for folder in python.parents):
        # Ours is in a home that nobody else may enter.
        if not SYSTEM_PYTHON.exists():
            pytest.skip("there is no Python that a plain user may run")
        packages = Path(str(sysconfig.get_path("purelib")))
        host.python = str(SYSTEM_PYTHON)
        host.environment["PYTHONPATH"] = f"{REPOSITORY}:{packages}"
    host.prefix = [*before(AS_NOBODY, host.python), *host.prefix]
