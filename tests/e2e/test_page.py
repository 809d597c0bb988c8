"""The page in a real browser: first session, pause and rollback, lost connections, foreign words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.conftest import Account
from tests.stub.openai_stub import OpenAIStub
from tests.support.product import Product
from tests.support.waiting import wait_for

playwright = pytest.importorskip("playwright.sync_api")

Make = Callable[..., dict[str, Any]]
# Against hanging for ever, not a measure.
PATIENCE_MS = 120_000
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 800}
SLOW = {"say": "one two three four five six seven eight", "chunks": 8, "every_ms": 150}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (scripts/system-packages.sh installs it)")
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, product: Product, operator: Account) -> Iterator[Any]:
    """A phone's browser, signed in by a launch link; no script error stays unseen."""
    context = browser.new_context(viewport=PHONE)
    context.set_default_timeout(PATIENCE_MS)
    shown = context.new_page()
    errors: list[str] = []
    shown.on("pageerror", lambda error: errors.append(str(error)))
    link = product.command("launch", "--operator", operator.name).stdout.split()[-1]
    shown.goto(link)
    yield shown
    context.close()
    assert errors == []


def open_session(page: Any, product: Product, session_id: str) -> None:
    """The session's view, connected."""
    page.goto(f"{product.url}/#/sessions/{session_id}")
    page.locator("[data-connection=live]").wait_for()


def send(page: Any, text: str) -> None:
    """Write a message and send it."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def in_state(page: Any, state: str) -> None:
    """Until the page shows the session in this state."""
    page.locator(f".head[data-state={state}]").wait_for()


def said(client: httpx2.Client, session_id: str) -> list[str]:
    """The ids of all messages but tool results, as the server has them."""
    items = client.get(f"/sessions/{session_id}/messages", params={"limit": 500}).json()["items"]
    return [f"m-{item['id']}" for item in items if item["role"] != "tool"]


def shown_messages(page: Any) -> list[str]:
    """The ids of the messages on the page, from top to bottom."""
    found: list[str] = page.eval_on_selector_all(".message", "all => all.map(one => one.id)")
    return found


def test_a_first_session_from_the_launch_link_to_a_streamed_answer(
    page: Any, project: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    stub.play(SLOW)
    page.reload()
    page.get_by_role("button", name="New session").click()
    page.locator("[data-connection=live]").wait_for()
    send(page, "count to **eight**")
    page.locator(".message.live", has_text="one two").wait_for()
    page.locator(".message.primary:not(.live)", has_text="seven eight").wait_for()
    in_state(page, "idle")
    assert page.locator(".message.operator strong").inner_text() == "eight"
    [session] = client.get("/sessions").json()["items"]
    assert (session["source"], session["message_count"]) == ("web", 2)
    assert shown_messages(page) == said(client, session["id"])
    # Nothing is wider than a phone.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("link", name="Holdfast").click()
    page.locator(".card", has_text="count to").wait_for()


def test_what_a_model_says_stays_words(
    page: Any, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    evil = "<img src=x onerror=\"document.body.id='owned'\"> <script>document.body.id='owned'</script>"
    links = "[click](javascript:document.body.id='owned') [fine](https://example.org/a)"
    stub.play({"say": f"{evil}\n\n{links}\n\n```html\n{evil}\n```"})
    client.put(f"/sessions/{session['id']}", json={"title": evil[:190]})
    open_session(page, product, session["id"])
    send(page, evil)
    page.locator(".message.primary:not(.live)").wait_for()
    in_state(page, "idle")
    assert "<img src=x" in page.locator(".message.primary .text").inner_text()
    assert page.locator("main img, main script").count() == 0
    addresses = page.eval_on_selector_all(".message a", "all => all.map(one => one.href)")
    assert addresses == ["https://example.org/a"]
    page.goto(f"{product.url}/#/")
    page.locator(".card", has_text="<img").wait_for()
    assert page.evaluate("document.body.id") == ""
    policy = httpx2.get(product.url, trust_env=False).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_pause_resume_and_roll_back_with_the_buttons(
    page: Any, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    waiting = {"call": "shell", "arguments": {"command": "echo begun; sleep 1; echo over"}}
    stub.play(waiting, {"say": "That was it."})
    open_session(page, product, session["id"])
    send(page, "work")
    in_state(page, "running")
    page.get_by_role("button", name="Pause").click()
    in_state(page, "paused")
    page.locator(".panel.pause", has_text="paused in the browser").wait_for()
    assert page.get_by_role("button", name="Send").is_disabled()
    page.get_by_role("button", name="Resume").click()
    page.locator(".message.primary", has_text="That was it.").wait_for()
    in_state(page, "idle")
    page.locator("details.call summary", has_text="done").click()
    page.locator("details.call .output", has_text="over").wait_for()
    page.get_by_role("button", name="Roll back…").click()
    page.locator(".panel li button").first.click()
    page.locator(".message.primary", has_text="That was it.").wait_for(state="detached")
    assert shown_messages(page) == said(client, session["id"])


def test_a_killed_api_costs_the_page_nothing(
    page: Any, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    stub.play({**SLOW, "chunks": 8, "every_ms": 400})
    open_session(page, product, session["id"])
    send(page, "count")
    page.locator(".message.live", has_text="one").wait_for()
    product.wait_restarted("api", product.kill("api"))
    page.locator(".message.primary:not(.live)", has_text="one two three").wait_for()
    in_state(page, "idle")
    assert shown_messages(page) == said(client, session["id"])


def test_a_message_written_without_a_connection_is_sent_once(
    page: Any, product: Product, session: dict[str, Any], client: httpx2.Client
) -> None:
    open_session(page, product, session["id"])
    page.context.set_offline(True)
    send(page, "from the tunnel")
    page.get_by_text("No connection").wait_for()
    page.context.set_offline(False)
    page.locator(".message.primary", has_text="You said: from the tunnel").wait_for()
    page.reload()
    page.locator(".message.primary", has_text="You said: from the tunnel").wait_for()
    assert len(said(client, session["id"])) == 2


def test_search_leads_to_the_message(
    page: Any, product: Product, session: dict[str, Any], run_message: Make, stub: OpenAIStub
) -> None:
    for number in range(35):
        stub.play({"say": "the xylophone is here" if number == 0 else f"answer {number}"})
        run_message(session["id"], f"question {number}")
    page.get_by_label("Search everything").fill("xylophone")
    page.get_by_label("Search everything").press("Enter")
    page.locator(".card", has_text="xylophone").click()
    found = page.locator(".message.found")
    found.wait_for()
    assert "xylophone" in found.inner_text()


def test_without_a_cookie_the_page_says_how_to_come_in(browser: Any, product: Product) -> None:
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(PATIENCE_MS)
    shown = context.new_page()
    shown.goto(product.url)
    shown.get_by_text("holdfast launch").wait_for()
    context.close()


def test_only_the_files_of_the_page_are_served(product: Product) -> None:
    with httpx2.Client(base_url=product.url, trust_env=False) as plain:
        first = plain.get("/page/app.js")
        assert first.headers["content-type"] == "text/javascript; charset=utf-8"
        again = plain.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304
        for name in ("__init__.py", "..%2Fpyproject.toml", "nothing.js", "%2Fetc%2Fpasswd"):
            assert plain.get(f"/page/{name}").status_code == 404


def test_messages_are_read_backwards(
    client: httpx2.Client, session: dict[str, Any], run_message: Make
) -> None:
    for number in range(3):
        run_message(session["id"], json.dumps({"script": [{"say": f"answer {number}"}]}))
    path = f"/sessions/{session['id']}/messages"
    everything = [item["id"] for item in client.get(path).json()["items"]]
    last = client.get(path, params={"before": "latest", "limit": 4}).json()
    assert [item["id"] for item in last["items"]] == everything[2:]
    rest = client.get(path, params={"before": last["next_cursor"], "limit": 4}).json()
    assert [item["id"] for item in rest["items"]] == everything[:2]
    assert rest["next_cursor"] is None
    assert client.get(path, params={"before": "latest", "since": everything[0]}).status_code == 400
    assert client.get(path, params={"before": "no such id"}).status_code == 400
    wait_for(lambda: client.get(f"/sessions/{session['id']}").json()["state"] == "idle", "idle")
