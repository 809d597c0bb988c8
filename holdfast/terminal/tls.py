"""The terminal host by TLS: who may call is who has a certificate of the fleet's authority.

Both sides show one. TLS 1.3 tells a caller only with the first answer that its certificate was
refused, so nothing but the host's hello proves a connection.
"""

import contextlib
import socket
import ssl
from asyncio import StreamReader, StreamWriter, open_connection, timeout
from pathlib import Path

from holdfast.domain.machines import machine_name
from holdfast.terminal.errors import HostUnavailable

CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
MACHINE, REVOKED = "machine", "revoked"
# A request of a person may wait for both: a machine that fell silent, and one that does not answer.
DIAL_TIMEOUT_S = 5.0
SILENCE_S = 6
READ_BYTES = 1024 * 1024
REVOKED_BYTES_MAX = 1024 * 1024


def context(folder: Path, *, server: bool) -> ssl.SSLContext:
    """TLS 1.3 with certificates on both sides; HostUnavailable when the folder lacks one."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.check_hostname = not server
    try:
        made.load_verify_locations(folder / CA)
        made.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    except (OSError, ssl.SSLError) as error:
        words = f"{folder} has no certificate of a fleet ({error}): run `holdfast fleet join`"
        raise HostUnavailable(words) from error
    if server:
        made.num_tickets = 0
    return made


async def dial(address: str, machine_id: str, folder: Path) -> tuple[StreamReader, StreamWriter]:
    """A connection to that machine's host; OSError when another one, or nobody, answers there."""
    host, _, port = address.rpartition(":")
    async with timeout(DIAL_TIMEOUT_S):
        reader, writer = await open_connection(
            host.strip("[]"),
            int(port),
            ssl=context(folder, server=False),
            server_hostname=machine_name(machine_id),
            limit=READ_BYTES,
        )
    notice_silence(writer)
    return reader, writer


def notice_silence(writer: StreamWriter) -> None:
    """Have the kernel end a connection whose other side vanished without a word."""
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S // 3)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 3)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)


def caller(writer: StreamWriter) -> str:
    """The name in the certificate of whoever called; empty when it shows none."""
    names = (writer.get_extra_info("peercert") or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def is_revoked(folder: Path, name: str) -> bool:
    """Whether the file `revoked`, an id a line, names the machine; a file that is too long does."""
    with contextlib.suppress(FileNotFoundError):
        raw = (folder / REVOKED).read_bytes()[: REVOKED_BYTES_MAX + 1]
        ids = raw.decode(errors="replace").split()
        return len(raw) > REVOKED_BYTES_MAX or name in {machine_name(one) for one in ids}
    return False
