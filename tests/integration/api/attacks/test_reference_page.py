"""The page of the API's reference loads nothing from anywhere else, and cookies know about TLS."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import operators
from tests.support.servers.api_server import CONFIG, ApiServer, Caller

LOADING = {"src", "href", "action", "data", "srcset", "poster"}


class Addresses(HTMLParser):
    """Every element and every address in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.found |= {value or "" for name, value in attrs if name in LOADING}
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)


def test_the_reference_shows_every_operation_and_loads_nothing_foreign(caller: Caller) -> None:
    answer = caller.http.get("/docs")
    assert answer.status_code == 200
    page = Addresses()
    page.feed(answer.text)
    assert not page.elements & {"script", "iframe", "object", "embed", "img", "form", "style"}
    outside = {one for one in page.found if not one.startswith(("/", "#", "data:,"))}
    assert outside == set()
    assert not any(one.startswith("//") for one in page.found)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    style = httpx2.get(f"{caller.api.url}/page/reference.css", trust_env=False)
    assert (style.status_code, "url(" in style.text) == (200, False)
    document = caller.http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in answer.text
    ids = {one for one in page.found if one.startswith("#")}
    assert ids
    assert all(f'id="{one[1:]}"' in answer.text for one in ids)


@pytest.fixture
def public_api(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[ApiServer]:
    config = CONFIG + '[server]\npublic_url = "https://hold.example"\n'
    running = ApiServer(sqlite_store, tmp_path / "api-home", config=config).start()
    yield running
    running.stop()


def cookie_of(api: ApiServer) -> str:
    """What a launch link sets."""
    caller = api.operator()
    token = api.store.write(lambda db: operators.issue_token(db, caller.id, "launch"))
    caller.close()
    answer = httpx2.get(f"{api.url}/launch?token={token}", trust_env=False)
    assert answer.status_code == 303
    return answer.headers["set-cookie"]


def test_behind_https_the_cookie_is_secure(public_api: ApiServer) -> None:
    cookie = cookie_of(public_api)
    for part in ("Secure", "HttpOnly", "SameSite=strict", "Path=/", "Max-Age=2592000"):
        assert part in cookie
    assert "Domain" not in cookie


def test_on_plain_loopback_the_cookie_works_without_tls(api: ApiServer) -> None:
    assert "Secure" not in cookie_of(api)
