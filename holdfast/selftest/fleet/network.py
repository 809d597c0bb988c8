"""The network between the machines of a self-test: it can be cut between any two of them.

With root on Linux each machine is a network namespace behind one switch, which drops what it is
told to drop, without a word to either side. Elsewhere each has a loopback address of its own, and
nothing can be cut. The namespaces live as long as their holders, which end with this process.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass
from uuid import uuid4

TOOLS = ("ip", "bridge", "tc", "unshare", "nsenter")
CLIENTS, TEMPORAL = "clients", "temporal"
HOLD = "echo ready; exec cat"
# Benchmark addresses (RFC 2544): nobody has them on a real network.
SUBNET = "198.18.{}"
SWITCH_LINK = "switch0"
# A link that carries 32 kB a second keeps everybody waiting, up to two seconds a packet.
SLOW = ("tbf", "rate", "256kbit", "burst", "4kb", "latency", "2s")
TRIES_MAX = 20
COMMAND_TIMEOUT_S = 30.0
_random = random.Random()


class NetworkUnavailable(Exception):
    """Namespaces cannot be made here; the message says why."""


@dataclass(frozen=True)
class Place:
    """Where a machine is: its address, and what goes before the commands that run there."""

    address: str
    prefix: tuple[str, ...] = ()
    # Temporal's server finds its own services on 127.0.0.1 only, so it listens there too.
    temporal_ip: str = "0.0.0.0"


class Network:
    """Loopback addresses: every machine is somewhere, and nothing can be cut."""

    can_cut = False
    words = "loopback addresses; nothing can be cut"

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._net = f"127.{_random.randint(16, 250)}.{_random.randint(1, 250)}"

    def join(self, name: str) -> Place:
        """A place for one more machine."""
        self.places[name] = Place(f"{self._net}.{10 + len(self.places)}")
        if name == TEMPORAL:
            self.places[name] = Place("127.0.0.1", temporal_ip="127.0.0.1")
        return self.places[name]

    def cut(self, *names: str) -> None:
        """Drop every packet between these machines, or between one and all others."""

    def slow(self, name: str) -> None:
        """Let packets to this machine crawl."""

    def heal(self) -> None:
        """Drop nothing any more, and let nothing crawl."""

    def close(self) -> None:
        """Remove the network."""


class Namespaces(Network):
    """A namespace for each machine; the clients stay in ours, with a link of their own."""

    can_cut = True
    words = "network namespaces"

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, str] = {}
        self._disturbed: set[str] = set()
        self._net = SUBNET.format(_random.randint(0, 255))
        self._link = f"hf{uuid4().hex[:8]}"
        try:
            self._hold(SWITCH_LINK)
            self._in_switch("ip", "link", "add", SWITCH_LINK, "type", "bridge")
            self._in_switch("ip", "link", "set", SWITCH_LINK, "up")
            self._plug(CLIENTS, self._link, ())
        except BaseException:
            self.close()
            raise

    def join(self, name: str) -> Place:
        """A namespace with one link to the switch."""
        self._hold(name)
        prefix = self._prefix(name)
        _run(*prefix, "ip", "link", "set", "lo", "up")
        return self._plug(name, "eth0", prefix)

    def cut(self, *names: str) -> None:
        """Two ports of a bridge that are isolated hear nothing of each other; one is shut."""
        if len(names) == 1:
            self._in_switch("bridge", "link", "set", "dev", self._ports[names[0]], "state", "0")
        else:
            for name in names:
                port = self._ports[name]
                self._in_switch("bridge", "link", "set", "dev", port, "isolated", "on")
        self._disturbed.update(names)

    def slow(self, name: str) -> None:
        """The switch sends slowly to this machine."""
        self._in_switch("tc", "qdisc", "replace", "dev", self._ports[name], "root", *SLOW)
        self._disturbed.add(name)

    def heal(self) -> None:
        """Every port as it was."""
        for name in sorted(self._disturbed):
            port = self._ports[name]
            self._in_switch("bridge", "link", "set", "dev", port, "isolated", "off", "state", "3")
            # There is none unless it was slow.
            _try(*self._prefix(SWITCH_LINK), "tc", "qdisc", "del", "dev", port, "root")
        self._disturbed.clear()

    def close(self) -> None:
        """The kernel removes namespaces and links when their holders and programs are gone."""
        _try("ip", "link", "del", self._link)
        for holder in self._holders.values():
            if holder.stdin is not None:
                holder.stdin.close()
            if holder.stdout is not None:
                holder.stdout.close()
            holder.wait()
        self._holders.clear()

    def _plug(self, name: str, link: str, prefix: tuple[str, ...]) -> Place:
        """A cable from the switch to a machine, or to us."""
        port = f"p{len(self._ports)}"
        switch = str(self._holders[SWITCH_LINK].pid)
        there = ("netns", str(self._holders[name].pid)) if name in self._holders else ()
        _run("ip", "link", "add", link, *there, "type", "veth", "peer", "name", port,
             "netns", switch)  # fmt: skip
        self._ports[name] = port
        self._in_switch("ip", "link", "set", port, "master", SWITCH_LINK)
        self._in_switch("ip", "link", "set", port, "up")
        place = Place(f"{self._net}.{10 + len(self.places)}", prefix)
        _run(*prefix, "ip", "address", "add", f"{place.address}/24", "dev", link)
        _run(*prefix, "ip", "link", "set", link, "up")
        self.places[name] = place
        return place

    def _hold(self, name: str) -> None:
        """A program that keeps a namespace alive until we are gone, which closes its input."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for us: the network goes last.
            start_new_session=True,
        )
        self._holders[name] = holder
        assert holder.stdout is not None, "asked for"
        if holder.stdout.readline() != b"ready\n":
            raise NetworkUnavailable("a network namespace cannot be made here")

    def _prefix(self, name: str) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net")

    def _in_switch(self, *command: str) -> None:
        _run(*self._prefix(SWITCH_LINK), *command)


def make_network() -> Network:
    """Namespaces where this machine allows them, else loopback addresses, which say why."""
    try:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            raise NetworkUnavailable(f"{', '.join(missing)} missing" if missing else "not root")
        return Namespaces()
    except NetworkUnavailable as error:
        network = Network()
        network.words = f"{Network.words} ({error})"
        return network


def _run(*command: str) -> None:
    """Run a command; an address or a link of the last network may still be on its way out."""
    for _ in range(TRIES_MAX):
        answer = _try(*command)
        if answer.returncode == 0:
            return
        time.sleep(0.05)
    words = answer.stderr.decode("utf-8", "replace").strip()[:300]
    raise NetworkUnavailable(f"`{' '.join(command)}` failed: {words}")


def _try(*command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
