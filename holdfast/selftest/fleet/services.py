"""What a fleet shares: Postgres, Temporal, and an object store or a folder for blobs."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from holdfast.selftest.fleet.network import Network, Place
from holdfast.selftest.fleet.part import Part, without_ours
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports, temporal

POSTGRES_PORT, OBJECTS_PORT = 25432, 25000
DATABASE, USER, BUCKET = "postgres", "postgres", "selftest"
# A commit that was answered outlives a killed server; the kernel keeps what was written.
OPTIONS = ("fsync=off", "max_connections=200", "shared_buffers=64MB")
DEBIANS = Path("/usr/lib/postgresql")
MISSING = "Postgres' programs are missing (initdb, postgres; Debian: apt-get install postgresql)"


class FleetUnavailable(Exception):
    """This machine lacks what the self-test of a fleet needs; the message says what."""


class Postgres:
    """A cluster of our own in a folder of its own; as root it runs as the user `postgres`."""

    def __init__(self, place: Place) -> None:
        self.binaries = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-fleet-pg-"))
        self._password = secrets.token_hex(16)
        self._place = place
        self._as_user: tuple[str, ...] = ()
        if os.geteuid() == 0:
            owner = _postgres_user()
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            ids = (f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups")
            self._as_user = ("setpriv", *ids)
        self.part = Part(
            "postgres/postgres",
            [*place.prefix, *self._as_user, *self._command()],
            without_ours({}),
            self.folder.with_suffix(".log"),
            ends_by=signal.SIGINT,
        )

    @property
    def url(self) -> str:
        """Where it is, for those who know the password."""
        return f"postgresql://{USER}:{self._password}@{self.address}/{DATABASE}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._place.address}:{POSTGRES_PORT}"

    def start(self) -> None:
        """Initialise the cluster and start the server."""
        secret = self.folder / "password"
        secret.write_text(self._password + "\n")
        secret.chmod(0o644)
        words = ("-D", str(self.folder / "data"), "-U", USER, "-E", "UTF8", "-N")
        made = subprocess.run(
            [*self._as_user, str(self.binaries / "initdb"), *words, "-A", "scram-sha-256",
             f"--pwfile={secret}"],
            capture_output=True, check=False, cwd="/",
        )  # fmt: skip
        secret.unlink()
        if made.returncode != 0:
            said = made.stderr.decode("utf-8", "replace").strip()[-300:]
            raise FleetUnavailable(f"initdb failed: {said}")
        with (self.folder / "data" / "pg_hba.conf").open("a") as access:
            access.write("host all all 0.0.0.0/0 scram-sha-256\n")
        self.part.start()

    def remove(self) -> None:
        """Delete the cluster, after its end."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.part.log.unlink(missing_ok=True)

    def _command(self) -> list[str]:
        listen = (f"listen_addresses={self._place.address}", f"port={POSTGRES_PORT}")
        said = [word for option in (*listen, *OPTIONS) for word in ("-c", option)]
        data, sockets = str(self.folder / "data"), str(self.folder)
        return [str(self.binaries / "postgres"), "-D", data, "-k", sockets, *said]


class Temporal:
    """The Temporal server of all machines, its file in the folder."""

    def __init__(self, place: Place, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = ports.free_port()
        self.address = f"{place.address}:{port}"
        ui = f"{place.temporal_ip}:{ports.free_port()}"
        settings = Settings(home=folder)
        command = temporal.server_command(settings, port, ui, ip=place.temporal_ip)
        log = folder / "temporal.log"
        self.part = Part("temporal/temporal", [*place.prefix, *command], without_ours({}), log)


class Objects:
    """S3 by moto where it is installed, as a machine of its own; else a folder that all see."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.environment: dict[str, str] = {}
        self.part: Part | None = None
        self.url = (folder / "blobs").as_uri()
        self.words = "a folder"
        if importlib.util.find_spec("moto") is None:
            return
        place = network.join("objects")
        self._endpoint = f"http://{place.address}:{OBJECTS_PORT}"
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        where = {"AWS_ENDPOINT_URL": self._endpoint, "AWS_REGION": "us-east-1"}
        self.environment = {**keys, **where}
        self.url, self.words = f"s3://{BUCKET}/fleet", "S3 (moto)"
        serve = [sys.executable, "-m", "moto.server", "-H", place.address, "-p", str(OBJECTS_PORT)]
        log = folder / "objects.log"
        self.part = Part("objects/objects", [*place.prefix, *serve], without_ours({}), log)

    def start(self) -> None:
        """Start the server, if there is one."""
        if self.part is not None:
            self.part.start()

    def is_ready(self) -> bool:
        """Whether the bucket is there; made when the server answers."""
        if self.part is None:
            return True
        asked = urllib.request.Request(f"{self._endpoint}/{BUCKET}", method="PUT")
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=5.0)
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False
        return True


def binaries() -> Path:
    """The newest of Debian's versions of Postgres, else what is on the path."""
    found = sorted(DEBIANS.glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise FleetUnavailable(MISSING)
    return Path(on_path).resolve().parent


def _postgres_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        words = "there is no user named postgres, as whom a Postgres started by root must run"
        raise FleetUnavailable(words) from None
