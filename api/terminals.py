"""The API's one connection to the terminal host of this machine."""

from __future__ import annotations

import asyncio

from holdfast.domain.errors import BadRequest, Conflict, NotFound, Refusal, Unavailable
from holdfast.settings.environment import Settings
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import (
    HostLost,
    HostUnavailable,
    LimitReached,
    TerminalError,
    UnknownProcess,
)


class Terminals:
    """Connects on first use; the supervisor keeps the host running."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: TerminalClient | None = None
        self._connecting = asyncio.Lock()

    async def client(self) -> TerminalClient:
        """The shared client, or Unavailable while no host answers."""
        async with self._connecting:
            if self._client is None:
                self._client = await self.new_client()
            return self._client

    async def new_client(self) -> TerminalClient:
        """A client of one's own: each socket watches over its own connection to the host."""
        try:
            return await TerminalClient.connect(
                self._settings.terminal_socket,
                state_dir=self._settings.terminal_state_dir,
                start=False,
            )
        except (TerminalError, OSError) as error:
            raise Unavailable("the terminal host does not answer") from error

    async def close(self) -> None:
        """Let go of the host; its terminals go on."""
        if self._client is not None:
            await self._client.close_connection()
            self._client = None


def refusal_of(error: TerminalError) -> Refusal:
    """The refusal that says what the terminal host said."""
    if isinstance(error, UnknownProcess):
        return NotFound("Terminal not found.")
    if isinstance(error, LimitReached):
        return Conflict(error.message, error.details or None)
    if isinstance(error, HostUnavailable | HostLost):
        return Unavailable("the terminal host does not answer")
    return BadRequest(error.message, error.details or None)
