"""How many connections there are, in all and from each address; sockets count like requests."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

log = logging.getLogger("holdfast.api")
LOG_EVERY_S = 10.0
# Whoever has one IPv6 address usually has all of its /64.
IPV6_PREFIX = 64


class Ledger:
    """The open connections of this process, by the address they come from."""

    def __init__(
        self, *, in_all: int, per_address: int, trusted_proxies: Sequence[str] = ()
    ) -> None:
        self._in_all = in_all
        self._per_address = per_address
        self._proxies = [ipaddress.ip_network(one, strict=False) for one in trusted_proxies]
        self._open: dict[asyncio.BaseTransport, str] = {}
        self._count: Counter[str] = Counter()
        self._told: dict[str, tuple[float, int]] = {}

    def enter(self, transport: asyncio.BaseTransport) -> int | None:
        """Count one more; the status of the refusal when that is one too many."""
        address = network_of(peer_of(transport))
        if len(self._open) >= self._in_all:
            self.tell("503", f"{self._in_all} connections are open, the most there may be")
            return 503
        if self._count[address] >= self._per_address and not self._is_proxy(peer_of(transport)):
            self.tell(
                "429", f"{self._per_address} connections from {address}, the most there may be"
            )
            return 429
        self._open[transport] = address
        self._count[address] += 1
        return None

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """One less; harmless for one that never counted."""
        address = self._open.pop(transport, None)
        if address is not None:
            self._count[address] -= 1
            if self._count[address] <= 0:
                del self._count[address]

    def tell(self, kind: str, words: str) -> None:
        """A line in the log, at most one of each kind in a while, with how many it stands for."""
        now = time.monotonic()
        last, missed = self._told.get(kind, (-LOG_EVERY_S, 0))
        if now - last < LOG_EVERY_S:
            self._told[kind] = (last, missed + 1)
            return
        self._told[kind] = (now, 0)
        log.warning("refused with %s: %s%s", kind, words, f" ({missed} more)" if missed else "")

    def _is_proxy(self, address: str) -> bool:
        try:
            return any(ipaddress.ip_address(address) in network for network in self._proxies)
        except ValueError:
            return False


def peer_of(transport: Any) -> str:
    """The address at the other end; empty for a Unix socket."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def network_of(address: str) -> str:
    """What an address is counted as: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return str(found)
