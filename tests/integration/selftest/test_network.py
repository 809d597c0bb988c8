"""The network of a fleet's self-test: silent between two machines, and only between them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.selftest.fleet.network import CLIENTS, Namespaces, Network, make_network

# Nobody listens there: a refusal is an answer, silence is none.
PORT = 9
ASK = """
import socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except ConnectionRefusedError: print("answers")
except OSError: print("silent")
"""


@pytest.fixture
def three() -> Iterator[Network]:
    made = make_network()
    if not made.can_cut:
        pytest.skip(made.words)
    for name in ("a", "b", "c"):
        made.join(name)
    yield made
    made.close()


def reached(made: Network, one: str, other: str, *, patience_s: float = 20.0) -> bool:
    """Whether a machine hears another; a first packet may take a moment."""
    command = [*made.places[one].prefix, sys.executable, "-S", "-c", ASK]
    target = (made.places[other].address, str(PORT), str(patience_s))
    answer = subprocess.run([*command, *target], capture_output=True, text=True, check=True)
    return answer.stdout == "answers\n"


def is_silent(made: Network, one: str, other: str) -> bool:
    return not reached(made, one, other, patience_s=0.5)


def test_a_cut_is_silence_between_two_and_is_healed(three: Network) -> None:
    assert reached(three, "a", "b")
    three.cut("a", "b")
    assert is_silent(three, "a", "b")
    assert is_silent(three, "b", "a")
    assert reached(three, "a", "c")
    assert reached(three, CLIENTS, "a")
    three.heal()
    assert reached(three, "a", "b")


def test_a_machine_that_is_cut_from_all_hears_nobody_and_is_healed(three: Network) -> None:
    three.cut("a")
    assert is_silent(three, "a", "b")
    assert is_silent(three, CLIENTS, "a")
    assert reached(three, "b", "c")
    three.slow("b")
    three.heal()
    assert reached(three, CLIENTS, "a")


def test_nothing_is_left_of_a_network(three: Network) -> None:
    assert isinstance(three, Namespaces)
    mine = {name for _, name in socket.if_nameindex()}
    three.close()
    left = {name for _, name in socket.if_nameindex()}
    assert len(mine - left) == 1


def test_without_root_machines_have_loopback_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    made = make_network()
    assert not made.can_cut
    assert made.words == "loopback addresses; nothing can be cut (not root)"
    found = [made.join(name).address for name in ("a", "b")]
    assert len(set(found)) == 2
    assert all(one.startswith("127.") for one in found)
    made.cut("a", "b")
    made.heal()
    made.close()
