"""One request to the proxy of a cage, read strictly: what is not plainly HTTP is refused."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

HEADERS_MAX = 100
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HOST = re.compile(r"[0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
TARGET = re.compile(r"[\x21-\x7e]+")
# They are about one connection only, or are set anew.
DROPPED = {
    *("connection", "keep-alive", "proxy-connection", "proxy-authorization"),
    *("proxy-authenticate", "te", "trailer", "upgrade", "host"),
}


class Refused(Exception):
    """The request is not carried out; status and words go to whoever asked."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """Where to connect, and what to send there first; `head` is None for a tunnel."""

    host: str
    port: int
    head: bytes | None = None
    body_bytes: int = 0


def parse(raw: bytes) -> ProxyRequest:
    """The request whose head this is, up to and with the empty line; or Refused."""
    try:
        lines = raw.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    except UnicodeDecodeError:
        raise Refused(400, "the request is not ASCII") from None
    if any(re.search(r"[\x00-\x08\x0a-\x1f\x7f]", line) for line in lines):
        raise Refused(400, "the request has control characters")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise Refused(400, "the first line is not an HTTP/1.1 request")
    method, target, _ = words
    if not NAME.fullmatch(method) or not TARGET.fullmatch(target):
        raise Refused(400, "the first line is not an HTTP/1.1 request")
    headers = _headers(lines[1:])
    if method == "CONNECT":
        host, port = _authority(target, None)
        return ProxyRequest(host, port)
    return _forward(method, target, headers)


def _headers(lines: list[str]) -> list[tuple[str, str]]:
    if len(lines) > HEADERS_MAX:
        raise Refused(431, f"more than {HEADERS_MAX} headers")
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not NAME.fullmatch(name):
            raise Refused(400, "a header is malformed")
        found.append((name, value.strip()))
    return found


def _forward(method: str, target: str, headers: list[tuple[str, str]]) -> ProxyRequest:
    """A plain request, written anew so that it can only mean the host that is judged."""
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise Refused(400, "this is a proxy for CONNECT and for http:// addresses")
    authority, slash, path = rest.partition("/")
    if "?" in authority or "#" in target:
        raise Refused(400, "the address has no path")
    host, port = _authority(authority, 80)
    body = _body_bytes(headers)
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    kept = [(name, value) for name, value in headers if name.lower() not in DROPPED | named]
    ours = [("Host", authority), ("Connection", "close")]
    text = [f"{method} {slash or '/'}{path} HTTP/1.1"]
    text += [f"{name}: {value}" for name, value in (*ours, *kept)]
    return ProxyRequest(host, port, ("\r\n".join(text) + "\r\n\r\n").encode("ascii"), body)


def _body_bytes(headers: Iterable[tuple[str, str]]) -> int:
    sizes = [value for name, value in headers if name.lower() == "content-length"]
    if any(name.lower() == "transfer-encoding" for name, _ in headers):
        raise Refused(501, "a request with Transfer-Encoding is not carried out; send its length")
    if not sizes:
        return 0
    if len(sizes) > 1 or not re.fullmatch(r"[0-9]{1,15}", sizes[0]):
        raise Refused(400, "Content-Length is malformed")
    return int(sizes[0])


def _authority(text: str, port_default: int | None) -> tuple[str, int]:
    host, port = text, ""
    if not text.endswith("]"):
        before, colon, after = text.rpartition(":")
        host, port = (before, after) if colon else (text, "")
    number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else port_default if not port else None
    if not HOST.fullmatch(host) or number is None or not 0 < number < 65536:
        raise Refused(400, "the address is not host:port")
    return host.strip("[]").lower().removesuffix("."), number
