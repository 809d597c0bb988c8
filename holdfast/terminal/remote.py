"""The terminal host of another machine, reached over TLS by its id."""

import ssl
import time
from pathlib import Path

from holdfast.terminal.client import TerminalClient
from holdfast.terminal.connection import Connection
from holdfast.terminal.errors import HostLost, HostUnavailable, VersionMismatch
from holdfast.terminal.identity import Identity
from holdfast.terminal.tls import dial

# Those who waited while somebody dialled in vain are told so, one after the other, at once.
FAILURE_KEPT_S = 1.0


class RemoteTerminalClient(TerminalClient):
    """Like the client of one's own machine; it never starts a host."""

    def __init__(self, address: str, machine_id: str, folder: Path) -> None:
        super().__init__(Path(), state_dir=Path(), start=False)
        self.address = address
        self.machine_id = machine_id
        self._folder = folder
        self._failure, self._failed_at = "", -FAILURE_KEPT_S

    async def identity(self) -> Identity:
        """Who answered: the machine that was meant, for its certificate says so."""
        greeting = (await self._live()).greeting
        return Identity(str(greeting["id"]), int(greeting["epoch"]))

    async def _open(self) -> Connection:
        if time.monotonic() - self._failed_at < FAILURE_KEPT_S:
            raise HostUnavailable(self._failure)
        where = f"the terminal host of {self.machine_id} at {self.address}"
        try:
            connection = await Connection.begin(
                *await dial(self.address, self.machine_id, self._folder)
            )
        except (OSError, ssl.SSLError, ValueError, HostLost, VersionMismatch) as error:
            words = str(error) or "it is silent"
            self._failure, self._failed_at = f"{where} does not answer: {words}", time.monotonic()
            raise HostUnavailable(self._failure) from error
        if connection.greeting.get("id") != self.machine_id:
            await connection.close()
            raise HostUnavailable(f"{where} is another machine's")
        return connection
