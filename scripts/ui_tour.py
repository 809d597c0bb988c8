"""Makes the pictures of docs/temporal-ui.md and docs/page.md: a real product in a real browser.

Not part of any build: it needs Debian's chromium (`scripts/system-packages.sh`), and runs by hand
as `python -m scripts.ui_tour`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from tests.support.servers.browser import Page, chromium
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 780}
QUESTION = "run `echo 3 tests, 0 failures`"
# Fonts and lines that move in; nothing tells when they stand.
SETTLE_S = 1.5
SHELL = {"call": "shell", "arguments": {"command": "echo working; sleep 2"}}
STORIES: dict[str, list[dict[str, Any]]] = {
    "Tidy the changelog": [{"say": "Done."}],
    "Find the slow query": [SHELL, {"say": "It was the join."}],
    "Look before you leap": [
        {"call": "checkpoint", "arguments": {"reason": "may I delete these?"}},
        {"say": "Deleted."},
    ],
    "Build everything": [SHELL, {"repeat": 100, "step": SHELL}],
}


def main() -> None:
    """Start, tell stories, take pictures, stop."""
    IMAGES.mkdir(exist_ok=True)
    product = Product()
    folder = Path(tempfile.mkdtemp(prefix="hf-tour-"))
    try:
        product.start()
        with product.api(product.token()) as client:
            sessions = tell(client, folder)
            asked = ask(client, folder)
        take(product, sessions)
        take_page(product, asked, sessions["Look before you leap"])
    finally:
        product.close()
        shutil.rmtree(folder, ignore_errors=True)


def tell(client: httpx2.Client, folder: Path) -> dict[str, str]:
    """Sessions in every state worth a picture; ids by title."""
    project = client.post("/projects/load", json={"path": str(folder)}).json()
    ids = {}
    for title, script in STORIES.items():
        made = client.post(f"/projects/{project['id']}/sessions", json={"title": title}).json()
        ids[title] = made["id"]
        content = json.dumps({"script": script})
        client.post(f"/sessions/{made['id']}/messages", json={"content": content})
    states = {"Find the slow query": "idle", "Look before you leap": "paused"}
    for title, state in states.items():
        path = f"/sessions/{ids[title]}"
        wait_for(lambda path=path, state=state: client.get(path).json()["state"] == state, title)  # type: ignore[misc]
    return ids


def ask(client: httpx2.Client, folder: Path) -> str:
    """A session as somebody would have it who has no provider yet."""
    project = client.post("/projects/load", json={"path": str(folder)}).json()
    made = client.post(
        f"/projects/{project['id']}/sessions", json={"title": "Run the tests"}
    ).json()
    path = f"/sessions/{made['id']}"
    client.post(f"{path}/messages", json={"content": QUESTION})
    wait_for(lambda: client.get(path).json()["state"] == "idle", "an answer")
    return str(made["id"])


def take_page(product: Product, asked: str, paused: str) -> None:
    """The page on a phone: the list, an answer, a pause."""
    link = product.command("launch").stdout.split()[-1]
    with chromium() as browser, browser.page(**PHONE) as page:
        shoot(page, link, "page-list.png", ["Run the tests"])
        shoot(page, f"{product.url}/#/sessions/{asked}", "page-session.png", ["shell", "done"])
        shoot(page, f"{product.url}/#/sessions/{paused}", "page-pause.png", ["The agent asks"])


def take(product: Product, sessions: dict[str, str]) -> None:
    """The list, a session at work, and what is paused."""
    workflows = f"{product.run_json()['temporal_ui_url']}namespaces/default/workflows"
    building, paused = sessions["Build everything"], sessions["Look before you leap"]
    link = product.command("launch").stdout.split()[-1]
    with chromium() as browser, browser.page(**SIZE) as page:
        page.goto(link)
        shoot(page, workflows, "temporal-list.png", list(sessions.values()))
        shoot(page, f"{workflows}/{building}", "temporal-session.png", [building, "call_model"])
        query = "SessionState%3D%22paused%22"
        shoot(page, f"{workflows}?query={query}", "temporal-paused.png", [paused])
        others = set(sessions.values()) - {paused}
        shown = {one for one in others if one in page.text("body")}
        assert shown == set(), f"the filter shows {shown}, too"


def shoot(page: Page, url: str, name: str, wanted: list[str]) -> None:
    """One picture, when the page shows what it is for and has come to rest."""
    page.goto(url)
    for words in wanted:
        page.see("body", words)
    time.sleep(SETTLE_S)
    (IMAGES / name).write_bytes(page.picture())


if __name__ == "__main__":
    main()
