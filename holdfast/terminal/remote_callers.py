"""Callers from other machines: the TLS listener of a host, and those who may call no more."""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from holdfast.terminal import tls
from holdfast.terminal.link import Link

logger = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
VARIABLES = ("HOST_LISTEN", "FLEET_DIR")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


class Remote:
    """Where a host listens for other machines, and the folder of its certificate."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._context: ssl.SSLContext | None = None
        self._shown_at = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Remote | None":
        """As HOLDFAST_HOST_LISTEN and HOLDFAST_FLEET_DIR say; None without both."""
        address, folder = (environment.get(f"HOLDFAST_{name}") for name in VARIABLES)
        return cls(address, Path(folder)) if address and folder else None

    @property
    def machine_id(self) -> str | None:
        """The id that the certificate was made for, as the file beside it says."""
        try:
            return (self.folder / tls.MACHINE).read_text().strip() or None
        except OSError:
            return None

    async def listen(self, serve: Serve) -> asyncio.Server:
        """Accept whoever shows a certificate of the fleet that is not revoked."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            name = tls.caller(writer)
            if not name or tls.is_revoked(self.folder, name):
                logger.warning("a caller was refused: %s", name or "it has no name")
                writer.close()
                return
            tls.notice_silence(writer)
            await serve(reader, writer, name)

        host, _, port = self.address.rpartition(":")
        self._shown_at = self._written()
        self._context = tls.context(self.folder, server=True)
        return await asyncio.start_server(
            accept,
            host.strip("[]"),
            int(port),
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            limit=tls.READ_BYTES,
        )

    def look(self, links: Iterable[Link]) -> None:
        """End links of callers that were revoked; show a certificate that was renewed."""
        for link in tuple(links):
            if link.caller and tls.is_revoked(self.folder, link.caller):
                logger.warning("a caller was cut off: %s is revoked", link.caller)
                link.close()
        if self._context is not None and (written := self._written()) != self._shown_at:
            # Live links keep theirs; the next one is shown the new one.
            self._context.load_cert_chain(self.folder / tls.CERTIFICATE, self.folder / tls.KEY)
            self._shown_at = written

    def _written(self) -> int:
        return (self.folder / tls.CERTIFICATE).stat().st_mtime_ns
