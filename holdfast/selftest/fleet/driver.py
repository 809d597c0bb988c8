"""A client of a fleet: it works through whichever API answers, and does what needs machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.client.client import Client
from holdfast.selftest.caller import Caller, Reply
from holdfast.selftest.driver import Driver
from holdfast.selftest.fleet import scripts
from holdfast.selftest.fleet.record import FleetRecord

# An API that was cut off answers nothing: the other one is asked soon.
TIMEOUT_S = 20.0
HELD_S_MAX = 8.0


class AnyApiCaller(Caller):
    """Each attempt asks the next API, so that every answer may come from either."""

    def __init__(self, urls: list[str], token: str, record: FleetRecord) -> None:
        super().__init__(urls[0], token, record)
        self.client.close()
        self._clients = [Client(url, token, timeout_s=TIMEOUT_S) for url in urls]
        self._turns = itertools.cycle(self._clients)

    def close(self) -> None:
        """Give back the connections to all of them."""
        for client in self._clients:
            client.close()

    def _try(
        self, method: str, path: str, body: Any, params: dict[str, Any], key: str | None
    ) -> Reply | None:
        self.client = next(self._turns)
        return super()._try(method, path, body, params, key)


class FleetDriver(Driver):
    """What every client does, and sessions that move, long commands, much output, terminals."""

    record: FleetRecord

    def __init__(
        self, number: int, folder: Path, urls: list[str], token: str, record: FleetRecord, seed: str
    ) -> None:
        super().__init__(number, folder, urls[number % len(urls)], token, record, seed)
        self.caller.close()
        self.caller = AnyApiCaller(urls, token, record)

    def acts(self) -> dict[Callable[[], None], int]:
        """More commands than on one machine: they are what a fleet may lose or double."""
        return {
            **super().acts(),
            self.run_long: 4,
            self.print_much: 3,
            self.hold_terminal: 2,
            self.move: 2,
        }

    def run_long(self) -> None:
        """A command that outlives a worker, and perhaps its machine's silence."""
        word = self._word()
        self._expect(word)
        self._ask(self._session(), scripts.long_command(self.random, word))

    def print_much(self) -> None:
        """A command whose whole output is known."""
        word = self._word()
        self._expect(word)
        lines, script = scripts.much_output(self.random, word)
        self.record.expect_output(word, lines)
        self._ask(self._session(), script)

    def hold_terminal(self) -> None:
        """A terminal that lives for a while, so that machines die under it."""
        session_id, word = self._session(), self._word()
        body = {"command": scripts.terminal_command(word), "cols": 80, "rows": 24}
        reply = self.caller.post(f"/sessions/{session_id}/ptys", body)
        if not reply.ok:
            return
        pty_id = str(reply.body["pty_id"])
        self.record.acknowledge("terminal", session_id, pty_id, word=word)
        self.over.wait(self.random.uniform(0.0, HELD_S_MAX))
        self.caller.post(f"/sessions/{session_id}/ptys/{pty_id}/resize", {"cols": 90, "rows": 30})
        self.caller.delete(f"/sessions/{session_id}/ptys/{pty_id}")

    def move(self) -> None:
        """The operator moves a session; refused while something of it runs where it was."""
        session_id = self._session()
        shown = self.caller.get("/hosts").body["items"]
        ready = [one["id"] for one in shown if one["state"] == "up"]
        if not ready:
            return
        target = self.random.choice(sorted(ready))
        reply = self.caller.post(f"/sessions/{session_id}/move", {"host_id": target})
        if reply.ok:
            self.record.acknowledge("move", session_id, target)
            self._ask(session_id, scripts.shell(self.random, self._expected_word()))

    def _expected_word(self) -> str:
        word = self._word()
        self._expect(word)
        return word
