"""The embedded Temporal server: its UI is behind our login, its HTTP API answers no web page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import Account
from tests.support.servers.browser import BrowserMissing, chromium
from tests.support.servers.product import Product

LISTENING = "0A"
UI_API = "/temporal/api/v1/namespaces"


@pytest.fixture
def browser_of_local(product: Product) -> Iterator[httpx2.Client]:
    """An HTTP client signed in as `local` by a launch link, as a browser is."""
    with httpx2.Client(trust_env=False, timeout=60.0, follow_redirects=True) as client:
        client.get(product.command("launch").stdout.split()[-1])
        yield client


def listeners(pid: int) -> list[tuple[str, int]]:
    """Every IPv4 address and port that this process listens at."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(descriptor.readlink().name)
        except FileNotFoundError:
            continue
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[3] == LISTENING and f"socket:[{words[9]}]" in sockets:
            host, port = words[1].split(":")
            found.append((".".join(str(byte) for byte in bytes.fromhex(host)[::-1]), int(port, 16)))
    return found


def test_the_administrators_browser_sees_every_session(
    product: Product, browser_of_local: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    answer = browser_of_local.get(f"{product.url}{UI_API}")
    assert answer.status_code == 200
    assert answer.json()["namespaces"][0]["namespaceInfo"]["name"] == "default"
    page = browser_of_local.get(f"{product.url}/temporal")
    assert page.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_the_ui_works_in_a_real_browser(
    product: Product, client: httpx2.Client, project: dict[str, Any]
) -> None:
    session = client.post(f"/projects/{project['id']}/sessions", json={}).json()["id"]
    client.post(f"/sessions/{session}/messages", json={"content": "hello", "model_override": None})
    link = product.command("launch").stdout.split()[-1]
    try:
        with chromium() as browser, browser.page(width=1280, height=720) as page:
            page.goto(link)
            where = product.run_json()["temporal_ui_url"]
            page.goto(f"{where}namespaces/default/workflows/{session}")
            page.see("body", session)
            page.see("body", "Session")
    except BrowserMissing as error:
        pytest.skip(str(error))


def test_without_a_login_the_ui_answers_nothing(product: Product) -> None:
    for path in ("/temporal", "/temporal/", UI_API):
        assert httpx2.get(f"{product.url}{path}", trust_env=False).status_code == 401


def test_other_operators_do_not_get_the_ui_that_shows_all(
    product: Product, operator: Account
) -> None:
    bearer = {"Authorization": f"Bearer {operator.token}"}
    answer = httpx2.get(f"{product.url}{UI_API}", headers=bearer, trust_env=False)
    assert answer.status_code == 403
    assert "namespaces" not in answer.text


def test_a_page_on_another_site_cannot_signal_through_the_ui(
    product: Product, browser_of_local: httpx2.Client
) -> None:
    path = "/temporal/api/v1/namespaces/default/workflows/any/signal/message"
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        answer = browser_of_local.post(f"{product.url}{path}", headers=origin, json={})
        assert answer.status_code == 403, origin


def test_our_token_and_cookie_do_not_reach_the_ui(product: Product) -> None:
    # The UI would answer an Authorization header of ours by asking Temporal with it.
    bearer = {"Authorization": f"Bearer {product.token()}"}
    answer = httpx2.get(f"{product.url}{UI_API}", headers=bearer, trust_env=False)
    assert answer.status_code == 200
    cookies = answer.headers.get_list("set-cookie")
    assert cookies
    assert all("Path=/temporal" in cookie for cookie in cookies)


def test_no_port_that_a_web_page_can_guess_speaks_temporals_http_api(product: Product) -> None:
    found = listeners(product.pids()["temporal"])
    guessable = [(host, port) for host, port in found if host in {"127.0.0.1", "0.0.0.0"}]
    assert guessable
    assert len(found) > len(guessable), "the UI listens at an address of its own"
    paths = ("/api/v1/namespaces", UI_API, "/api/v1/namespaces/default/workflows")
    for host, port in guessable:
        for path in paths:
            for name in ("localhost", "127.0.0.1", "evil.example"):
                assert status(f"http://{host}:{port}{path}", name) != 200, (host, port, path)


def status(url: str, host: str) -> int:
    """The status of an answer; 0 where something else than HTTP/1 is spoken."""
    try:
        with httpx2.Client(trust_env=False, timeout=5.0) as client:
            return client.get(url, headers={"Host": host}).status_code
    except httpx2.TransportError:
        return 0
