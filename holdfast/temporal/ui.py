"""The way to the UI of the embedded Temporal server, which listens where no web page finds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import NotFound, Unavailable

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 30.0
CONNECTIONS_MAX = 20


class TemporalUi:
    """Asks the UI's server; connects on first use."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Any = None

    @asynccontextmanager
    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """One answer whose body is still to be read; NotFound where there is no embedded server."""
        if not self._address:
            raise NotFound("Temporal runs elsewhere; its UI is not shown here.")
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=f"http://{self._address}",
                timeout=TIMEOUT_S,
                trust_env=False,
                limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
            )
        try:
            async with self._client.stream(
                method, target, headers=dict(headers), content=body
            ) as answer:
                yield answer
        except httpx2.TransportError as error:
            raise Unavailable("the Temporal UI does not answer") from error

    async def close(self) -> None:
        """Let go of its connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
