"""The way out of a cage: public hosts by the proxy, and nothing of this machine or its networks."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.terminal import tree
from holdfast.terminal.client import TerminalClient
from tests.support.servers.foreign_network import HOST_ADDRESS, SERVER_ADDRESS, ForeignNetwork
from tests.support.servers.terminal_hosts import TestHost, collect, eventually

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "curl", "bwrap"))),
    reason="only root can make networks, with iproute2, curl and bubblewrap",
)
# What the product has on a machine: Temporal, the API, a database.
OUR_PORTS = (7233, 8420, 5432, 80)
PRIVATE_ADDRESS = "10.9.8.7"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestHost]:
    network = ForeignNetwork(
        tmp_path_factory.mktemp("network"),
        open_example=SERVER_ADDRESS,
        sub_open_example=SERVER_ADDRESS,
        loops_example="127.0.0.1",
        local_example=HOST_ADDRESS,
        private_example=PRIVATE_ADDRESS,
    )
    with network:
        network.serve(network.there, SERVER_ADDRESS, 80, 443, 8080)
        network.serve(network.here, "0.0.0.0", *OUR_PORTS)
        with TestHost(*network.prefix) as running:
            yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def run(host: TestHost, client: TerminalClient, command: str, net: Any) -> str:
    """The output of a command in a cage with this network."""
    key = f"{len(await client.list())}"
    await client.spawn(host.request(key, command, cage={"net": net}, timeout_s=60))
    await client.wait(key)
    return (await collect(client, key)).decode()


async def test_public_hosts_are_reached_by_http_and_by_tunnels(
    host: TestHost, client: TerminalClient
) -> None:
    command = "curl -s http://open.example/a?b; curl -s -p http://open.example:443/c; "
    command += "curl -s -d body http://open.example/d"
    output = await run(host, client, command, True)
    assert "served /a?b for open.example" in output
    assert "served /c for open.example:443" in output
    assert "served /d" in output
    assert "Proxy-Connection" not in output


async def test_only_named_hosts_and_ports_are_reached_and_the_answer_says_so(
    host: TestHost, client: TerminalClient
) -> None:
    net = {"allow": ["*.open.example", "open.example:8080"]}
    for url, served in (
        ("sub.open.example", True),
        ("open.example:8080", True),
        ("open.example", False),
        ("sub.open.example:8080", False),
        (SERVER_ADDRESS, False),
    ):
        output = await run(host, client, f"curl -s http://{url}/x", net)
        assert ("served" in output) is served, url
        assert ("is not in cage.net.allow" in output) is not served, url


FORBIDDEN = [
    *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "loops.example", "127.1"),
    *("2130706433", "0x7f.1", "0.0.0.0", "169.254.169.254", "private.example", PRIVATE_ADDRESS),
    *("local.example", HOST_ADDRESS, "224.0.0.1", "[fe80::1]", "[64:ff9b::7f00:1]", "192.168.0.1"),
]


async def test_this_machine_and_private_networks_are_never_reached(
    host: TestHost, client: TerminalClient
) -> None:
    lines = [
        f"curl -s {how} --noproxy '' -x $http_proxy http://{name}:80/x"
        for name in FORBIDDEN
        for how in ("", "-p -i")
    ]
    output = await run(host, client, "; echo; ".join(lines), True)
    assert "served" not in output
    assert output.count("403 Forbidden") == len(FORBIDDEN)
    refusals = output.count("is not public") + output.count("runs on")
    assert refusals >= 2 * len(FORBIDDEN)


async def test_what_the_product_listens_on_is_not_reached(
    host: TestHost, client: TerminalClient
) -> None:
    tries = [
        f"curl -s -m 5 {how} http://{name}:{port}/x"
        for name in ("127.0.0.1", HOST_ADDRESS, "local.example")
        for port in OUR_PORTS
        for how in ("--noproxy '*'", "--noproxy '' -x $http_proxy")
    ]
    output = await run(host, client, "; ".join(tries) + f"; ls {host.socket}; echo done", True)
    assert "served" not in output
    assert "done" in output
    assert f"cannot access '{host.socket}'" in output


async def test_private_networks_that_the_project_file_names_are_reached(
    host: TestHost, client: TerminalClient
) -> None:
    net = {"allow": ["loops.example:8420"], "private": ["127.0.0.0/8"]}
    assert "served" in await run(host, client, "curl -s http://loops.example:8420/x", net)
    assert "served" not in await run(host, client, "curl -s http://loops.example:7233/x", net)


async def test_without_the_proxy_there_is_no_way_and_without_net_no_proxy(
    host: TestHost, client: TerminalClient
) -> None:
    direct = f"curl -s -m 5 --noproxy '*' http://{SERVER_ADDRESS}/x; echo $?"
    assert await run(host, client, direct, True) == "7\n"
    proxied = "curl -s -m 5 -x http://127.0.0.1:3128 http://open.example/x; echo $?"
    assert await run(host, client, proxied, False) == "7\n"


BOMB = r"""
import socket
def ask(data):
    with socket.create_connection(("127.0.0.1", 3128)) as one:
        try: one.sendall(data)
        except OSError: pass
        try: return one.recv(4096).split(b"\r\n")[0].decode()
        except OSError: return "cut"
for data in (
    b"\x16\x03\x01\x02\x00 junk\r\n\r\n",
    b"CONNECT open.example\r\n\r\n",
    b"CONNECT open.example:443:443 HTTP/1.1\r\n\r\n",
    b"CONNECT open.example:99999 HTTP/1.1\r\n\r\n",
    b"GET http://x@open.example/ HTTP/1.1\r\n\r\n",
    b"GET http://open.example/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
    b"POST http://open.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST http://open.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://open.example/ HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    b"GET http://open.example/ HTTP/1.1\r\nA: " + b"b" * 100_000,
): print(ask(data))
slow = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(64)]
for one in slow: one.sendall(b"GET http")
print(ask(b"CONNECT open.example:443 HTTP/1.1\r\n\r\n"))
print(slow[0].recv(100).split(b"\r\n")[0].decode())
for one in slow: one.close()
while "503" in (said := ask(b"CONNECT open.example:443 HTTP/1.1\r\n\r\n")): pass
print(said)
"""


async def test_junk_bombs_and_slow_requests_are_refused_and_the_proxy_lives_on(
    host: TestHost, client: TerminalClient
) -> None:
    (host.work / "bomb.py").write_text(BOMB)
    output = await run(host, client, "/usr/bin/python3 bomb.py", True)
    codes = [line.split(" ")[1] for line in output.splitlines()]
    assert codes[:7] == ["400"] * 7
    assert codes[7:] == ["501", "431", "431", "503", "408", "200"]


async def test_the_proxy_is_started_again_when_it_dies(
    host: TestHost, client: TerminalClient
) -> None:
    command = "curl -s http://open.example/1; touch met; while [ ! -e on ]; do sleep 0.05; done; "
    command += "curl -s --retry 5 --retry-all-errors http://open.example/2"
    await client.spawn(host.request("kept", command, cage={"net": True}, timeout_s=60))
    await eventually((host.work / "met").exists)
    for pid in tree.children_of(host.pid):
        if b"cages.egress" in (tree.PROC / str(pid) / "cmdline").read_bytes():
            os.kill(pid, 9)
    (host.work / "on").touch()
    assert b"served /2" in await collect(client, "kept")
