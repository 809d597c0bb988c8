"""The page in a real browser: a first session, pause and rollback, lost connections, escaping."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.conftest import Account
from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.browser import Browser, BrowserMissing, Page, chromium
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

Make = Callable[..., dict[str, Any]]
SLOW = {"say": "one two three four five six seven eight", "chunks": 8, "every_ms": 150}
ANSWER = ".message.primary:not(.live)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One chromium for all tests of the page."""
    try:
        with chromium() as started:
            yield started
    except BrowserMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def page(browser: Browser, product: Product, operator: Account) -> Iterator[Page]:
    """A phone's browser, signed in by a launch link."""
    link = product.command("launch", "--operator", operator.name).stdout.split()[-1]
    with browser.page(width=390, height=844) as shown:
        shown.goto(link)
        yield shown


def open_session(page: Page, product: Product, session_id: str) -> None:
    """The session's view, connected."""
    page.goto(f"{product.url}/#/sessions/{session_id}")
    page.see("[data-connection=live]")


def send(page: Page, text: str) -> None:
    """Write a message and send it."""
    page.write("textarea[name=message]", text)
    page.click("button", "Send")


def in_state(page: Page, state: str) -> None:
    """Until the page shows the session in this state."""
    page.see(f".head[data-state={state}]")


def said(client: httpx2.Client, session_id: str) -> list[str]:
    """The ids of all messages but tool results, as the server has them."""
    items = client.get(f"/sessions/{session_id}/messages", params={"limit": 500}).json()["items"]
    return [f"m-{item['id']}" for item in items if item["role"] != "tool"]


def shown_messages(page: Page) -> list[str]:
    """The ids of the messages on the page, from top to bottom."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.message')].map(one => one.id)"
    )
    return found


def test_a_first_session_from_the_launch_link_to_a_streamed_answer(
    page: Page, project: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    stub.play(SLOW)
    page.reload()
    page.click("button", "New session")
    page.see("[data-connection=live]")
    send(page, "count to **eight**")
    page.see(".message.live", "one two")
    page.see(ANSWER, "seven eight")
    in_state(page, "idle")
    assert page.text(".message.operator strong") == "eight"
    [session] = client.get("/sessions").json()["items"]
    assert (session["source"], session["message_count"]) == ("web", 2)
    assert shown_messages(page) == said(client, session["id"])
    # Nothing is wider than a phone.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.click("a", "Holdfast")
    page.see(".card", "count to")


def test_what_a_model_says_stays_words(
    page: Page, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    owned = "document.body.id='owned'"
    evil = f'<img src=x onerror="{owned}"> <script>{owned}</script>'
    links = f"[click](javascript:{owned}) [fine](https://example.org/a)"
    stub.play({"say": f"{evil}\n\n{links}\n\n```html\n{evil}\n```"})
    client.put(f"/sessions/{session['id']}", json={"title": evil})
    open_session(page, product, session["id"])
    send(page, evil)
    page.see(ANSWER)
    in_state(page, "idle")
    assert "<img src=x" in page.text(f"{ANSWER} .text")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    addresses = page.evaluate("[...document.querySelectorAll('.message a')].map(one => one.href)")
    assert addresses == ["https://example.org/a"]
    page.goto(f"{product.url}/#/")
    page.see(".card", "<img")
    assert page.evaluate("document.body.id") == ""
    policy = httpx2.get(product.url, trust_env=False).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_pause_resume_and_roll_back_with_the_buttons(
    page: Page, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    waiting = {"call": "shell", "arguments": {"command": "echo begun; sleep 1; echo over"}}
    stub.play(waiting, {"say": "That was it."})
    open_session(page, product, session["id"])
    send(page, "work")
    page.see("details.call")
    page.click("button", "Pause")
    in_state(page, "paused")
    page.see(".panel.pause", "paused in the browser")
    assert page.evaluate("document.querySelector('.composer button').disabled")
    page.evaluate("(window.old = document.querySelector('.act.resume')).focus()")
    page.click("button", "Roll back")
    page.wait("!window.old.isConnected", "the buttons to be drawn anew")
    assert page.evaluate("document.activeElement.className") == "act resume"
    page.miss(".panel.pause")
    page.click("button", "Leave it")
    page.see(".panel.pause", "paused in the browser")
    page.click("button", "Resume")
    page.see(ANSWER, "That was it.")
    in_state(page, "idle")
    page.see("details.call .output", "over")
    page.see("details.call summary", "done")
    page.click("button", "Roll back")
    page.click(".panel li button")
    page.miss(ANSWER, "That was it.")
    assert shown_messages(page) == said(client, session["id"])


def test_a_killed_api_costs_the_page_nothing(
    page: Page, product: Product, session: dict[str, Any], client: httpx2.Client, stub: OpenAIStub
) -> None:
    stub.play({**SLOW, "every_ms": 400})
    open_session(page, product, session["id"])
    send(page, "count")
    page.see(".message.live", "one")
    product.wait_restarted("api", product.kill("api"))
    page.see(ANSWER, "one two three")
    in_state(page, "idle")
    assert shown_messages(page) == said(client, session["id"])


def test_a_message_written_without_a_connection_is_sent_once(
    page: Page, product: Product, session: dict[str, Any], client: httpx2.Client
) -> None:
    open_session(page, product, session["id"])
    page.offline(cut=True)
    send(page, "from the tunnel")
    page.see(".composer", "No connection")
    page.offline(cut=False)
    page.see(ANSWER, "You said: from the tunnel")
    page.reload()
    page.see(ANSWER, "You said: from the tunnel")
    assert len(said(client, session["id"])) == 2


def test_search_leads_to_a_message_far_up(
    page: Page, product: Product, session: dict[str, Any], run_message: Make, stub: OpenAIStub
) -> None:
    stub.play({"say": "the xylophone is here"})
    run_message(session["id"], "where is it?")
    calls = [{"call": "read_file", "arguments": {"path": f"file {one}"}} for one in range(40)]
    stub.play(*calls, {"say": "done"})
    run_message(session["id"], "look around")
    page.write("input[name=q]", "xylophone")
    page.evaluate("document.getElementById('find').requestSubmit()")
    page.click(".card", "xylophone")
    page.see(".message.found", "xylophone")


# Requests for such paths wait for `release`; then `answer`, or the server, answers them.
HOLD = """((path, answer) => {
  const held = new Promise((go) => (window.release = go));
  const real = window.fetch;
  window.asked = [];
  window.fetch = async (...request) => {
    window.asked.push(request[0]);
    if (!request[0].includes(path)) return real(...request);
    await held;
    return answer ? Response.json(answer[1], { status: answer[0] }) : real(...request);
  };
})"""


def test_words_of_an_attempt_that_broke_off_make_way_for_the_next(
    page: Page, product: Product, session: dict[str, Any], stub: OpenAIStub
) -> None:
    stub.play({"say": "one two", "drop": True}, {"say": "one two three", "chunks": 3})
    open_session(page, product, session["id"])
    count = "document.querySelectorAll('.message.live').length"
    look = f"() => window.most = Math.max(window.most ?? 0, {count})"
    watch = "observe(document.body, {childList: true, subtree: true})"
    page.evaluate(f"new MutationObserver({look}).{watch}")
    send(page, "count")
    page.see(ANSWER, "one two three")
    in_state(page, "idle")
    assert page.evaluate("window.most") == 1


def test_a_browser_that_is_signed_out_says_so_and_keeps_the_text(
    page: Page, product: Product, session: dict[str, Any]
) -> None:
    open_session(page, product, session["id"])
    page.evaluate(f"{HOLD}('/messages', [401, {{}}])")
    page.evaluate("release()")
    send(page, "kept")
    page.see("#notice", "holdfast launch")
    page.wait("document.querySelector('textarea[name=message]').value === 'kept'", "the text")


def test_a_view_that_comes_late_covers_nothing(
    page: Page, product: Product, session: dict[str, Any]
) -> None:
    open_session(page, product, session["id"])
    page.evaluate(f"{HOLD}('/projects')")
    page.evaluate("location.hash = '#/'")
    page.wait("asked.some((one) => one.includes('/projects'))", "the list to be asked for")
    page.evaluate(f"location.hash = '#/sessions/{session['id']}'")
    page.see("[data-connection=live]")
    page.evaluate("release()")
    page.wait("asked.some((one) => one.includes('/sessions?'))", "the list to go on")
    page.see("[data-connection=live]")


def test_an_address_written_by_hand_is_no_trouble(page: Page, product: Product) -> None:
    page.goto(f"{product.url}/#/search/100%")
    page.see("main", "Nothing was found.")
    page.goto(f"{product.url}/#/sessions/%2E%2E%2Fprojects")
    page.see("main", "Try again")


def test_an_ended_session_that_is_reopened_is_heard_again(
    page: Page, product: Product, session: dict[str, Any]
) -> None:
    open_session(page, product, session["id"])
    page.evaluate("window.confirm = () => true")
    page.click("button", "End")
    page.see("[data-connection=over]")
    in_state(page, "ended")
    page.click("button", "Reopen")
    page.see("[data-connection=live]")
    send(page, "still there?")
    page.see(ANSWER, "You said: still there?")


def test_a_message_of_very_many_parts_is_shown(
    page: Page, product: Product, session: dict[str, Any], run_message: Make, stub: OpenAIStub
) -> None:
    stub.play({"say": "noted"})
    run_message(session["id"], "`a`\n" * 50_000 + "over")
    open_session(page, product, session["id"])
    page.see(ANSWER, "noted")
    page.click(".message.operator button", "Show all 200004 characters")
    page.wait("document.querySelector('.message.operator pre').textContent.endsWith('over')", "all")


def test_what_was_refused_and_what_was_written_since_are_both_kept(
    page: Page, product: Product, session: dict[str, Any]
) -> None:
    open_session(page, product, session["id"])
    refusal = {"error": {"code": "conflict", "message": "cannot start while running"}}
    page.evaluate(f"{HOLD}('/messages', {json.dumps([409, refusal])})")
    send(page, "one")
    page.see(".composer", "Sending")
    page.write("textarea[name=message]", "two")
    page.evaluate("release()")
    page.see("#notice", "cannot start while running")
    kept = "document.querySelector('textarea[name=message]').value"
    page.wait(f"{kept} === 'one\\n\\ntwo'", "both texts")


def test_a_list_that_was_made_longer_stays_long(
    page: Page, project: dict[str, Any], client: httpx2.Client, run_message: Make
) -> None:
    made = [client.post(f"/projects/{project['id']}/sessions", json={}) for _ in range(32)]
    page.reload()
    page.click("button", "Show more")
    page.wait("document.querySelectorAll('.card').length === 32", "all sessions")
    run_message(made[0].json()["id"], "the oldest comes first")
    page.see(".card", "the oldest comes first")
    assert page.evaluate("document.querySelectorAll('.card').length") == 32


def test_without_a_cookie_the_page_says_how_to_come_in(browser: Browser, product: Product) -> None:
    with browser.page(width=1280, height=800) as shown:
        shown.goto(product.url)
        shown.see("main", "holdfast launch")


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


def test_a_session_shows_what_holds_its_programs(
    page: Page, product: Product, new_session: Make, client: httpx2.Client
) -> None:
    session = new_session()
    cage = client.get(f"/sessions/{session['id']}").json()["cage"]
    open_session(page, product, session["id"])
    page.see(f"[data-cage={cage['kind']}]", cage["kind"])
    page.see(".cage", "no network")
    page.see(".cage", f"memory_mb {cage['limits']['memory_mb']:g}")
