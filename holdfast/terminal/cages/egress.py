"""The way out of cages: a process of its own that serves each cage's proxy by its own rules.

It listens on sockets that lie inside the cages and connects from outside. A name is resolved once;
all its addresses are judged, and one of those is dialled. Started by `doors.py`, ends with it.
"""

import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.domain.cages.destinations import Address, Destinations, plain
from holdfast.terminal.cages import proxy_requests
from holdfast.terminal.cages.proxy_requests import ProxyRequest, Refused

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
RESOLVING_MAX = 8
RESOLVERS = 32
HEAD_BYTES_MAX = 16 * 1024
HEAD_TIMEOUT_S = 10.0
RESOLVE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0
ADDRESSES_TRIED = 3
# In both directions together, for one process tree.
BYTES_MAX = 64 * 1024**3
CHUNK_BYTES = 64 * 1024
CONTROL_BYTES_MAX = 64 * 1024
LOGGED_MAX = 100
PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name, as this machine knows them."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def is_ours(address: Address) -> bool:
    """Whether an address belongs to this machine: then the kernel would answer from it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the kernel only chooses a route.
        probe.connect((str(address), 9))
        return plain(probe.getsockname()[0]) == address
    return False


class CageProxy:
    """The proxy of one cage."""

    def __init__(
        self,
        name: str,
        rules: Destinations,
        *,
        resolver: Resolve = resolve,
        logged: Callable[..., None] = logger.warning,
    ) -> None:
        self._name = name
        self._rules = rules
        self._resolver = resolver
        self._log = logged
        self._resolving = asyncio.Semaphore(RESOLVING_MAX)
        self._bytes_left = BYTES_MAX
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._server: asyncio.Server | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Serve what connects to a socket that listens already."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=HEAD_BYTES_MAX)

    def close(self) -> None:
        """The cage is over: so are its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._tasks) >= CONNECTIONS_MAX:
                words = f"more than {CONNECTIONS_MAX} connections at once"
                await _answer(writer, Refused(503, words))
                return
            self._tasks.add(task)
            await self._serve_one(reader, writer)
        except (OSError, TimeoutError):
            # One side went away or fell silent.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = proxy_requests.parse(await _head(reader))
            upstream = await self._dial(request)
        except Refused as refused:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                await _answer(writer, refused)
            return
        try:
            await self._relay(request, (reader, writer), upstream)
        finally:
            upstream[1].close()

    async def _dial(
        self, request: ProxyRequest
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first judged address that answers, or Refused."""
        where = f"{request.host}:{request.port}"
        if self._bytes_left <= 0:
            raise Refused(403, f"this process has used its {BYTES_MAX} bytes of network")
        try:
            addresses = await self.judge(request.host, request.port)
        except Refused as refused:
            self._tell(where, refused.words)
            raise
        for address in addresses[:ADDRESSES_TRIED]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    # The address that was judged; the name is not asked again.
                    return await asyncio.open_connection(str(address), request.port)
        raise Refused(502, f"{where} does not answer")

    async def judge(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of a name that the rules allow, or Refused."""
        if not self._rules.name(host, port):
            words = f"{host}:{port} is not in cage.net.allow of the project file"
            raise Refused(403, f"{words}; without a port, only 80 and 443 are meant")
        try:
            async with self._resolving, asyncio.timeout(RESOLVE_TIMEOUT_S):
                addresses = [plain(text) for text in await self._resolver(host, port)]
        except (OSError, ValueError, UnicodeError):
            raise Refused(502, f"{host} cannot be resolved") from None
        except TimeoutError:
            raise Refused(504, f"{host} could not be resolved in time") from None
        for address in addresses:
            if not self._rules.may_have(address):
                words = f"{host} has the address {address}, which is not public"
                raise Refused(403, f"{words} and not in cage.net.private of the project file")
            if not self._rules.names_network(address) and is_ours(address):
                raise Refused(403, f"{host} is the machine that this cage runs on")
        return addresses

    async def _relay(
        self,
        request: ProxyRequest,
        inside: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        outside: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        if request.head is None:
            inside[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            outside[1].write(request.head)
        up = None if request.head is None else request.body_bytes
        async with asyncio.timeout(IDLE_TIMEOUT_S) as idle, asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump(inside[0], outside[1], idle, up))
            pumps.create_task(self._pump(outside[0], inside[1], idle, None))

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        idle: asyncio.Timeout,
        left: int | None,
    ) -> None:
        """Pass bytes on until the end, or until `left` of them; both ways share one idle clock."""
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while left != 0:
                data = await source.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
                self._bytes_left -= len(data)
                if not data or self._bytes_left <= 0:
                    break
                left = None if left is None else left - len(data)
                sink.write(data)
                await sink.drain()
                idle.reschedule(clock() + IDLE_TIMEOUT_S)
            if left is None or self._bytes_left <= 0:
                sink.write_eof()

    def _tell(self, where: str, words: str) -> None:
        if where not in self._told and len(self._told) < LOGGED_MAX:
            self._told.add(where)
            self._log("cage %s: refused %s: %s", self._name, where, words)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(431, f"the request's head has more than {HEAD_BYTES_MAX} bytes") from None
    except asyncio.IncompleteReadError:
        raise Refused(400, "the request ends within its head") from None
    except TimeoutError:
        raise Refused(408, f"the request's head took more than {HEAD_TIMEOUT_S:.0f} s") from None


async def _answer(writer: asyncio.StreamWriter, refused: Refused) -> None:
    body = f"Holdfast: {refused.words}\n".encode()
    head = (
        f"HTTP/1.1 {refused.status} {PHRASES[refused.status]}\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        f"X-Holdfast-Refused: {refused.words}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    writer.write_eof()


class Egress:
    """All proxies of one host, as it opens and closes them over the control socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._proxies: dict[str, CageProxy] = {}

    async def serve(self) -> None:
        """Until the host closes the control socket."""
        self._control.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(RESOLVERS))
        readable = asyncio.Event()
        loop.add_reader(self._control, readable.set)
        while True:
            await readable.wait()
            readable.clear()
            try:
                raw, descriptors, _, _ = socket.recv_fds(self._control, CONTROL_BYTES_MAX, 1)
            except BlockingIOError:
                continue
            if not raw:
                return
            await self._take(json.loads(raw), descriptors)

    async def _take(self, order: dict[str, object], descriptors: list[int]) -> None:
        name = str(order["name"])
        for descriptor in descriptors:
            rules = Destinations.parse(order["rules"])
            assert rules is not None
            proxy = self._proxies[name] = CageProxy(name, rules)
            await proxy.serve(socket.socket(fileno=descriptor))
        if not descriptors and (gone := self._proxies.pop(name, None)) is not None:
            gone.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(Egress(socket.socket(fileno=int(sys.argv[1]))).serve())
