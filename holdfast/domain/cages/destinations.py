"""Where a cage may connect to: names from its project file, and which addresses they may have.

A name is judged twice: as it was written, and by every address that it resolves to.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ENTRIES_MAX = 256
USUAL_PORTS = (80, 443)
NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?|\*")
# Other ranges of IPv6 are reserved, or lead to IPv4 addresses by a gateway.
PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
TRANSITION_V6 = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("2002::/16"))


@dataclass(frozen=True, slots=True)
class Destination:
    """One entry of `cage.net.allow`: a name, `*.suffix` or `*`, and its port if it names one."""

    name: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The entry, or ValueError in words."""
        name, port = text.strip().lower(), None
        bracketed = re.fullmatch(r"\[([0-9a-f:.]+)\](?::(\d{1,5}))?", name)
        if bracketed:
            name, written = str(ipaddress.IPv6Address(bracketed[1])), bracketed[2]
        else:
            name, _, written = name.partition(":")
            if not NAME.fullmatch(name.rstrip(".")):
                raise ValueError(f"{text!r} is not host, *.suffix, host:port or [IPv6]:port")
        if written:
            port = int(written) if written.isdigit() else 0
            if not 0 < port < 65536:
                raise ValueError(f"{text!r} has no port between 1 and 65535")
        return cls(name.rstrip("."), port)

    def covers(self, host: str, port: int) -> bool:
        """Whether a host, in lower case and without a last dot, is meant; `*.x` is not `x`."""
        if port not in (USUAL_PORTS if self.port is None else (self.port,)):
            return False
        if self.name.startswith("*"):
            return host.endswith(self.name[1:])
        return host == self.name


@dataclass(frozen=True, slots=True)
class Destinations:
    """`cage.net` as a mapping; `net: true` is everything public."""

    allow: tuple[Destination, ...]
    private: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, raw: object) -> Self | None:
        """None for no network and for `host`, which is no list; ValueError in words."""
        if raw in (False, None, "off", "host"):
            return None
        if raw in (True, "on"):
            return cls((Destination("*", None),))
        if not isinstance(raw, Mapping) or set(raw) - {"allow", "private"}:
            raise ValueError("is false, true, host, or a mapping of allow and private")
        allow, private = _texts("allow", raw), _texts("private", raw)
        if not allow:
            raise ValueError("names no host in allow")
        return cls(tuple(map(Destination.parse, allow)), tuple(map(_network, private)))

    def to_json(self) -> dict[str, Any]:
        """What `parse` reads."""
        allow = [f"[{entry.name}]" if ":" in entry.name else entry.name for entry in self.allow]
        ports = ["" if entry.port is None else f":{entry.port}" for entry in self.allow]
        return {
            "allow": [name + port for name, port in zip(allow, ports, strict=True)],
            "private": list(map(str, self.private)),
        }

    def name(self, host: str, port: int) -> bool:
        """Whether the project file names this host and port."""
        return any(entry.covers(host, port) for entry in self.allow)

    def names_network(self, address: Address) -> bool:
        """Whether the project file gives this address although it is not public."""
        return any(address in network for network in self.private)

    def may_have(self, address: Address) -> bool:
        """Whether an allowed name may have this address: a public one, or one that is named."""
        return is_public(address) or self.names_network(address)


def plain(text: str) -> Address:
    """The address, as IPv4 if it is one that is written as IPv6."""
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def is_public(address: Address) -> bool:
    """Whether an address belongs to the open internet and to one receiver."""
    if address.version == 6 and address not in PUBLIC_V6:
        return False
    leads_elsewhere = any(address in network for network in TRANSITION_V6)
    return address.is_global and not address.is_multicast and not leads_elsewhere


def _texts(key: str, raw: Mapping[str, Any]) -> list[str]:
    found = raw.get(key) or []
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{key} is a list of texts")
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"{key} has more than {ENTRIES_MAX} entries")
    return list(found)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"private: {error}") from None
