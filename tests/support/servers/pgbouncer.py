"""PgBouncer from Debian's packages, in transaction mode: the pooler that fleets have."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from holdfast.supervisor import ports
from tests.support.waiting import wait_for

CONFIG = """
[databases]
* = host=127.0.0.1 port={postgres}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 300
logfile = {folder}/log
"""


class PgBouncerMissing(Exception):
    """The program cannot be found here."""


class PgBouncer:
    """A pooler whose few server connections are given to whoever has a transaction."""

    def __init__(self, postgres_port: int, *, size: int = 4) -> None:
        self.port = ports.free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="hfpb-", dir="/tmp"))
        self._config = CONFIG.format(
            postgres=postgres_port,
            port=self.port,
            size=size,
            users=self.folder / "users",
            folder=self.folder,
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> PgBouncer:
        """Run it, as `postgres` where we are root, which it refuses."""
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise PgBouncerMissing("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(self._config)
        prefix: list[str] = []
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            # It takes the user itself, so that the process is our own child.
            prefix = ["-u", "postgres"]
        self._process = subprocess.Popen(
            [program, *prefix, str(self.folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        wait_for(self._answers, "PgBouncer to answer")
        return self

    def stop(self) -> None:
        """Stop at once, whoever is connected."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=60.0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, direct_url: str) -> str:
        """The same database through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{direct_url.rpartition('/')[2]}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(
                f"postgresql://postgres@127.0.0.1:{self.port}/postgres", connect_timeout=5
            ).close()
        except psycopg.OperationalError:
            assert self._process is not None
            if self._process.poll() is not None:
                said = (self.folder / "log").read_text() if (self.folder / "log").exists() else ""
                raise AssertionError(f"PgBouncer ended: {said[-500:]}") from None
            return False
        return True
