"""Who asks: a bearer token, or the cookie that a launch token was turned into."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.requests import HTTPConnection

from api.connections import network_of
from api.services import Services
from holdfast.domain.errors import Forbidden, RateLimited, Unauthenticated
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator
from holdfast.storage.projects import failed_logins, operators

COOKIE = "holdfast_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FAILURES_PER_MINUTE = 120
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class Identity:
    """The operator behind a request, and how that is known."""

    operator: Operator
    by_cookie: bool


class FailedLogins:
    """Slows down whoever guesses tokens at any API; those who hold a good one never notice."""

    def __init__(self, store: OpenStore, per_minute: int = FAILURES_PER_MINUTE) -> None:
        self._store = store
        self._per_minute = per_minute
        # Whoever is far beyond the limit here is not worth a write any more.
        self._here = MovingWindowRateLimiter(MemoryStorage())
        self._limit = RateLimitItemPerMinute(per_minute)

    async def count(self, address: str) -> None:
        """Note one wrong token; RateLimited when there were too many."""
        if self._here.hit(self._limit, "login", address):
            noted = await self._store.awrite(lambda db: failed_logins.count(db, address))
            if noted <= self._per_minute:
                return
        raise RateLimited("too many wrong tokens; wait a minute")


async def identify(services: Services, request: HTTPConnection) -> Identity | None:
    """The caller, or None when no good token came along."""
    bearer = _bearer(request)
    cookie = request.cookies.get(COOKIE, "")
    if bearer:
        operator = await services.store.aread(lambda db: operators.authenticate(db, bearer))
        return None if operator is None else Identity(operator, by_cookie=False)
    if cookie:
        operator = await services.store.aread(
            lambda db: operators.authenticate(db, cookie, kind="cookie")
        )
        return None if operator is None else Identity(operator, by_cookie=True)
    return None


async def require(services: Services, request: HTTPConnection) -> Operator:
    """The caller, or a refusal. A cookie is only good together with our own Origin."""
    identity = await identified(services, request)
    if identity is None:
        if _bearer(request) or COOKIE in request.cookies:
            logins: FailedLogins = request.app.state.failed_logins
            await logins.count(address_of(request))
        raise Unauthenticated("a bearer token is needed; `holdfast token` prints one")
    changes = request.scope["type"] == "websocket" or request.scope["method"] not in SAFE_METHODS
    if identity.by_cookie and changes:
        check_origin(services, request, required=True)
    return identity.operator


def secure_cookies(services: Services, request: HTTPConnection) -> bool:
    """Whether browsers may send our cookies over TLS only: where that is how they come."""
    public = services.configuration.current.server.public_url or ""
    return request.url.scheme in ("https", "wss") or public.startswith("https://")


def address_of(request: HTTPConnection) -> str:
    """Where a request comes from, as failed logins are counted: a proxy's word only if trusted."""
    return network_of(request.client.host) if request.client else "unknown"


async def identified(services: Services, request: HTTPConnection) -> Identity | None:
    """`identify`, once per request."""
    state = request.scope.setdefault("state", {})
    if "identity" not in state:
        state["identity"] = await identify(services, request)
    found: Identity | None = state["identity"]
    return found


def check_origin(services: Services, request: HTTPConnection, *, required: bool) -> None:
    """Refuse a page of another site; without `required` a missing Origin is a program's."""
    origin = request.headers.get("origin")
    if origin is None and not required:
        return
    server = services.configuration.current.server
    allowed = {value.rstrip("/") for value in server.allowed_origins}
    if server.public_url:
        parts = urlsplit(server.public_url)
        allowed.add(f"{parts.scheme}://{parts.netloc}")
    host = request.headers.get("host", "")
    allowed |= {f"http://{host}", f"https://{host}"}
    if origin is None or origin.rstrip("/") not in allowed:
        raise Forbidden("this request comes from another site")


def check_host(services: Services, request: HTTPConnection) -> None:
    """On loopback a foreign Host is a page that had its name rebound to this machine."""
    allowed = set(services.configuration.current.server.allowed_hosts)
    if not services.settings.bind_is_loopback and not allowed:
        return
    hosts = request.headers.getlist("host") or [""]
    if any(_host_name(host) not in LOOPBACK_HOSTS | allowed for host in hosts):
        raise Forbidden("this Host is not served here")


def _host_name(host: str) -> str | None:
    """The Host header without its port; None when it is no host at all."""
    if not all(letter.isalnum() or letter in ".-:[]_" for letter in host):
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _bearer(request: HTTPConnection) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
