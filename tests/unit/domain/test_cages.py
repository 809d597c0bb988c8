"""What a cage may reach, and how it is told: without any machine."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from holdfast.domain.cages.destinations import ENTRIES_MAX, Destinations, is_public, plain
from holdfast.domain.cages.shown import DISABLED, MachineCage, described, in_words


def rules(*allow: str, private: tuple[str, ...] = ()) -> Destinations:
    """The network of a cage that names hosts."""
    found = Destinations.parse({"allow": list(allow), "private": list(private)})
    assert found is not None
    return found


@pytest.mark.parametrize("raw", [False, None, "off", "host"])
def test_no_network_and_the_machines_own_have_no_rules(raw: object) -> None:
    assert Destinations.parse(raw) is None


@pytest.mark.parametrize("raw", [True, "on"])
def test_a_network_that_is_on_reaches_every_host_at_the_usual_ports(raw: object) -> None:
    read = Destinations.parse(raw)
    assert read == rules("*")


def test_one_entry_is_enough_to_be_named() -> None:
    read = rules("pypi.org", "*.example.com")
    assert read.name("pypi.org", 443)
    assert read.name("a.example.com", 443)
    assert not read.name("example.org", 443)


@pytest.mark.parametrize(
    ("entry", "reached", "not_reached"),
    [
        ("pypi.org", [("pypi.org", 443), ("pypi.org", 80)], [("pypi.org", 22), ("a.pypi.org", 80)]),
        ("PyPI.org.:8443", [("pypi.org", 8443)], [("pypi.org", 443)]),
        ("*.example.com", [("a.example.com", 80)], [("example.com", 80), ("aexample.com", 80)]),
        ("*", [("anything", 443)], [("anything", 25)]),
        ("[2001:DB8::1]:5432", [("2001:db8::1", 5432)], [("2001:db8::1", 80)]),
        ("[2001:db8::1]", [("2001:db8::1", 80)], [("2001:db8::2", 80)]),
    ],
)
def test_an_entry_covers_its_host_and_port_and_is_written_as_it_is_read(
    entry: str, reached: list[tuple[str, int]], not_reached: list[tuple[str, int]]
) -> None:
    read = rules(entry)
    for parsed in (read, Destinations.parse(read.to_json())):
        assert parsed == read
        assert all(parsed.name(*place) for place in reached)
        assert not any(parsed.name(*place) for place in not_reached)


def test_a_private_network_is_reached_only_when_it_is_named() -> None:
    named = rules("db.lan", private=("10.0.0.0/8", "fd00::/8"))
    assert Destinations.parse(named.to_json()) == named
    for text, inside in [("10.1.2.3", True), ("fd00::1", True), ("192.168.0.1", False)]:
        address = plain(text)
        assert named.names_network(address) is inside
        assert named.may_have(address) is inside
        assert not rules("db.lan").may_have(address)
    assert named.may_have(plain("1.1.1.1"))


def test_an_ipv4_address_written_as_ipv6_is_judged_as_ipv4() -> None:
    assert plain("::ffff:10.0.0.1") == ipaddress.ip_address("10.0.0.1")
    assert plain("10.0.0.1") == ipaddress.ip_address("10.0.0.1")
    assert plain("2606:4700::1111") == ipaddress.ip_address("2606:4700::1111")


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "224.0.0.1", "::1", "fe80::1", "fd00::1",
     "ff02::1", "64:ff9b::a00:1", "2001::1", "2002:a00:1::1"],
)  # fmt: skip
def test_an_address_that_is_not_of_the_open_internet_is_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


def test_an_address_of_the_open_internet_is_public() -> None:
    assert is_public(ipaddress.ip_address("1.1.1.1"))
    assert is_public(ipaddress.ip_address("2606:4700::1111"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("maybe", "false, true, host, or a mapping"),
        (["allow"], "false, true, host, or a mapping"),
        ({"deny": ["x"]}, "false, true, host, or a mapping"),
        ({"allow": []}, "names no host"),
        ({"allow": "x"}, "allow is a list of texts"),
        ({"allow": ["x", 1]}, "allow is a list of texts"),
        ({"allow": ["a b"]}, "is not host"),
        ({"allow": ["x·"]}, "is not host"),
        ({"allow": ["x:0"]}, "no port"),
        ({"allow": ["x:65536"]}, "no port"),
        ({"allow": ["x:http"]}, "no port"),
        ({"allow": ["x"], "private": ["10.0.0.1/8"]}, "private: "),
        ({"allow": ["x"] * (ENTRIES_MAX + 1)}, f"allow has more than {ENTRIES_MAX}"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(raw: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Destinations.parse(raw)


def test_as_many_entries_as_allowed_and_every_port_are_read() -> None:
    assert len(rules(*["x"] * ENTRIES_MAX).allow) == ENTRIES_MAX
    assert rules("x:1").name("x", 1)
    assert rules("x:65535").name("x", 65535)


@pytest.mark.parametrize(
    ("cage", "network"),
    [
        ({}, "none"),
        ({"net": False}, "none"),
        ({"net": True}, "public"),
        ({"net": "on"}, "public"),
        ({"net": "host"}, "machine"),
        ({"net": {"allow": ["pypi.org", "*.lan"], "private": []}}, "pypi.org, *.lan"),
    ],
)
def test_the_network_of_a_cage_is_told_in_words(cage: dict[str, Any], network: str) -> None:
    assert described(cage, MachineCage("bubblewrap"))["network"] == network


def test_a_cage_is_told_with_its_kind_its_limits_and_what_is_reduced() -> None:
    machine = MachineCage(
        "landlock", None, ("programs share processes",), "no namespaces", {"pids": 64, "cpu_s": 9}
    )
    shown = described({"pids": 8, "memory_mb": None}, machine)
    assert shown == {
        "kind": "landlock",
        "program": None,
        "network": "none",
        "limits": {"pids": 8.0, "cpu_s": 9},
        "reduced": ["programs share processes"],
        "why": "no namespaces",
    }
    assert in_words(shown) == (
        "cage kind: landlock (reduced): programs share processes; because no namespaces"
    )


def test_a_whole_cage_is_one_short_line() -> None:
    shown = described({}, MachineCage("bubblewrap", "/usr/bin/bwrap"))
    assert in_words(shown) == "cage kind: bubblewrap (/usr/bin/bwrap)"


def test_a_disabled_cage_says_so_whatever_the_machine_has() -> None:
    shown = described("disabled", MachineCage("bubblewrap", "/usr/bin/bwrap", limits={"pids": 9}))
    assert (shown["kind"], shown["program"], shown["network"]) == ("none", None, "machine")
    assert (shown["limits"], shown["why"]) == ({}, DISABLED)
