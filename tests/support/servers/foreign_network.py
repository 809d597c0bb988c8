"""Two network namespaces of a test's own: a terminal host in one, a server on the internet in the
other. Nothing leaves them.
"""

import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Self

HOST_ADDRESS = "93.184.215.1"
SERVER_ADDRESS = "93.184.215.14"
SERVER = """
import http.server, socketserver, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"served {self.path} for {self.headers['Host']} {sorted(self.headers)}\\n".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])); self.do_GET()
    def log_message(self, *words): pass
servers = [http.server.ThreadingHTTPServer((sys.argv[1], int(p)), Handler) for p in sys.argv[2:]]
for server in servers: threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
"""


class ForeignNetwork:
    """`prefix` runs a command beside the terminal host; `names` are what resolves there."""

    def __init__(self, folder: Path, **names: str) -> None:
        tag = uuid.uuid4().hex[:8]
        self.here, self.there = f"hfa-{tag}", f"hfb-{tag}"
        self._hosts = folder / "hosts"
        lines = [f"{address} {name.replace('_', '.')}\n" for name, address in names.items()]
        self._hosts.write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(lines))
        self._servers: list[subprocess.Popen[str]] = []

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before the command of a terminal host."""
        mount = f'mount --bind {self._hosts} /etc/hosts && exec "$@"'
        enter = ("nsenter", f"--net=/run/netns/{self.here}", "unshare", "-m")
        return (*enter, "sh", "-c", mount, "sh")

    def __enter__(self) -> Self:
        for name in (self.here, self.there):
            _ip("netns", "add", name)
        one, other = self.here[-8:] + "a", self.there[-8:] + "b"
        _ip("link", "add", one, "netns", self.here, "type", "veth", "peer", "name", other)
        _ip("link", "set", other, "netns", self.there)
        for name, link, address in (
            (self.here, one, HOST_ADDRESS),
            (self.there, other, SERVER_ADDRESS),
        ):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
        for name in (self.here, self.there):
            _ip("netns", "delete", name)

    def serve(self, namespace: str, address: str, *ports: int) -> None:
        """An HTTP server there; it listens when this returns."""
        command = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-c", SERVER]
        server = subprocess.Popen(
            [*command, address, *map(str, ports)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        self._servers.append(server)


def _ip(*words: str) -> None:
    deadline = time.monotonic() + 5
    while subprocess.run(["ip", *words], check=False).returncode != 0:
        # An address or a link of the last test may still be on its way out.
        assert time.monotonic() < deadline, words
        time.sleep(0.1)
