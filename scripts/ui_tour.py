"""Makes the pictures of docs/temporal-ui.md: a real product, seen by a real browser.

Not part of any build: it needs Debian's chromium and `pip install playwright`, and runs by hand as
`python -m scripts.ui_tour`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Page, sync_playwright

from tests.support.product import Product
from tests.support.waiting import wait_for

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = {"width": 1280, "height": 720}
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
        take(product.run_json()["temporal_ui_url"], sessions)
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


def take(url: str, sessions: dict[str, str]) -> None:
    """The list, a session with its history, and the summary of its steps."""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE)
        shoot(page, f"{url}/namespaces/default/workflows", "temporal-list.png")
        build = sessions["Build everything"]
        shoot(page, f"{url}/namespaces/default/workflows/{build}", "temporal-session.png")
        query = 'SessionState%3D"paused"'
        shoot(page, f"{url}/namespaces/default/workflows?query={query}", "temporal-paused.png")
        paused = sessions["Look before you leap"]
        shown = {one for one in sessions.values() if one in page.content()}
        assert shown == {paused}, f"the filter shows {shown}"
        browser.close()


def shoot(page: Page, url: str, name: str) -> None:
    """One picture, when the page has come to rest."""
    page.goto(url)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    page.screenshot(path=str(IMAGES / name))


if __name__ == "__main__":
    main()
