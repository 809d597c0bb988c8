"""`holdfast term` and `holdfast attach` in a real terminal: keys, output, leaving."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from ptyprocess import PtyProcess

from tests.conftest import Account
from tests.support.servers.product import HOLDFAST, Product

DETACH = b"\x1d"


class Screen:
    """A command in a terminal of its own, and everything it has shown."""

    def __init__(self, child: PtyProcess) -> None:
        self.child = child
        self.shown = b""

    def type(self, keys: bytes) -> None:
        self.child.write(keys)

    def expect(self, text: bytes) -> None:
        while text not in self.shown:
            try:
                self.shown += self.child.read(65536)
            except EOFError:
                raise AssertionError(f"ended without {text!r}: {self.shown!r}") from None

    def exit_code(self) -> int:
        with contextlib.suppress(EOFError):
            while True:
                self.shown += self.child.read(65536)
        self.child.wait()
        return int(self.child.exitstatus)


@pytest.fixture
def terminal(product: Product, operator: Account) -> Iterator[Callable[..., Screen]]:
    """Runs `holdfast …` in a terminal, as the test's operator."""
    opened: list[PtyProcess] = []

    def run(*arguments: str) -> Screen:
        environment = {**product.environment(), "HOLDFAST_TOKEN": operator.token}
        child = PtyProcess.spawn([HOLDFAST, *arguments], env=environment, dimensions=(30, 100))
        opened.append(child)
        return Screen(child)

    yield run
    for child in opened:
        child.close(force=True)


def test_a_terminal_is_worked_in_and_left_running(
    terminal: Callable[..., Screen], client: httpx2.Client, session: dict[str, Any]
) -> None:
    screen = terminal("term", session["id"], "--command", "echo welcome; exec cat")
    screen.expect(b"welcome")
    screen.type(b"over the wire\n")
    screen.expect(b"over the wire\r\nover the wire")
    screen.type(DETACH)
    assert screen.exit_code() == 0, screen.shown
    assert b"detached from" in screen.shown
    left = client.get(f"/sessions/{session['id']}/ptys").json()["items"]
    assert len(left) == 1
    again = terminal("term", session["id"], left[0]["pty_id"])
    again.expect(b"over the wire")
    again.type(DETACH)
    assert again.exit_code() == 0


def test_attached_to_a_session_one_types_reads_and_leaves(
    terminal: Callable[..., Screen], client: httpx2.Client, session: dict[str, Any]
) -> None:
    screen = terminal("attach", session["id"])
    screen.expect(b"is idle")
    screen.type(b"from the keyboard\n")
    screen.expect(b"You said: from the keyboard")
    screen.type(DETACH)
    assert screen.exit_code() == 0, screen.shown
    assert client.get(f"/sessions/{session['id']}").json()["state"] in {"idle", "running"}
