"""A Postgres cluster for tests: Debian's binaries, a free port, no fsync, a database per test."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from uuid import uuid4

import psycopg

from holdfast.supervisor import ports
from tests.support.waiting import wait_for

SPEED = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB")
# A commit that was answered outlives a killed server; the kernel keeps what was written.
LASTING = ("synchronous_commit=on", "full_page_writes=on")
TEMPLATE = "holdfast_template"


class PostgresMissing(Exception):
    """The binaries cannot be found or run here."""


class PostgresCluster:
    """One server under /tmp, for one pytest process."""

    def __init__(self, *settings: str) -> None:
        self.settings = settings
        self.binaries = _binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="hfpg-", dir="/tmp"))
        self.port = ports.free_port()
        self.prefix: list[str] = []
        self.user = "postgres"
        self.server: subprocess.Popen[bytes] | None = None
        self.has_template = False

    def start(self) -> PostgresCluster:
        """Initialise and start; Postgres refuses root, so root hands over to `postgres`."""
        if os.getuid() == 0:
            try:
                owner = pwd.getpwnam("postgres")
            except KeyError as error:
                raise PostgresMissing("there is no user named postgres") from error
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self.prefix = ["runuser", "-u", "postgres", "--"]
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-A",
            "trust",
            "-U",
            self.user,
            "-N",
            "-E",
            "UTF8",
        )
        return self.serve()

    def serve(self) -> PostgresCluster:
        """Start the server over what is in the folder."""
        settings = (*SPEED, *self.settings)
        options = [option for setting in settings for option in ("-c", setting)]
        self.server = subprocess.Popen(
            [
                *self.prefix,
                str(self.binaries / "postgres"),
                *("-D", str(self.folder / "data"), "-p", str(self.port), "-k", str(self.folder)),
                *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        wait_for(self._answers, "Postgres to answer")
        return self

    def halt(self) -> None:
        """Stop the server as its service manager does: clients are told, data stays."""
        self._end("-INT")

    def kill(self) -> None:
        """SIGKILL for every process of the server at once, as when its machine dies."""
        self._end("-KILL")

    def _end(self, signal_option: str) -> None:
        assert self.server is not None
        # Postgres leaves its own pid as the first line; the child may be `runuser`.
        pid = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
        with_it = _children(int(pid)) if signal_option == "-KILL" else []
        subprocess.run(["kill", signal_option, pid, *map(str, with_it)], check=False)
        self.server.wait(timeout=120.0)
        wait_for(lambda: not any(map(_is_alive, with_it)), "the server's processes to be gone")
        self.server = None

    def stop(self) -> None:
        """Stop at once and remove everything."""
        if self.server is not None:
            self._end("-QUIT")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """Where that database is."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{database}"

    def empty_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid4().hex}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def migrated_database(self, home: Path) -> str:
        """The URL of a new database with our tables, copied from one that was migrated once."""
        from holdfast.storage.database.opening import open_store

        if not self.has_template:
            self.execute(f'CREATE DATABASE "{TEMPLATE}"')
            open_store(self.url(TEMPLATE), home).close()
            self.has_template = True
        name = f"test_{uuid4().hex}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """One statement outside any transaction."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            if self.server is not None and self.server.poll() is not None:
                raise AssertionError(f"Postgres ended with {self.server.returncode}") from None
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self.prefix, str(self.binaries / program), *arguments],
            check=True,
            capture_output=True,
            cwd="/",
        )


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(one) for one in found.split()]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _binaries() -> Path:
    """The newest of Debian's versions, else what is on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise PostgresMissing("Postgres is not installed (Debian: apt-get install postgresql)")
    return Path(on_path).resolve().parent
