"""A home that version 0.1.0 left behind, its processes killed: the code of now goes on with it.

`homes/landed-0.1.0.tar.xz` was made by that version itself: a session with files, a shell call, a
resumed pause and a fork; one that is paused, one that ended, one in the middle of a run, a chat.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.storage.database.sqlite_driver import dbapi_module
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

ARCHIVE = Path(__file__).with_name("homes") / "landed-0.1.0.tar.xz"
MADE_IN = "/tmp/hf-landed"
MOVED = (
    "UPDATE projects SET path = replace(path, ?, ?)",
    "UPDATE sessions SET working_directory = replace(working_directory, ?, ?)",
)


@dataclass(frozen=True)
class LandedHome:
    """The product of now in that home, an HTTP client of its operator, and the ids by name."""

    product: Product
    client: httpx2.Client
    ids: dict[str, str]

    def session(self, name: str) -> dict[str, Any]:
        """One of its sessions."""
        found: dict[str, Any] = self.client.get(f"/sessions/{self.ids[name]}").json()
        return found

    def wait_until(self, name: str, state: str) -> dict[str, Any]:
        """The session once it is in that state."""
        wait_for(lambda: self.session(name)["state"] == state, f"{name} to be {state}")
        return self.session(name)

    def texts(self, name: str) -> list[str]:
        """What the session's messages say, oldest first."""
        answer = self.client.get(f"/sessions/{self.ids[name]}/messages", params={"limit": 500})
        return [message["content"] for message in answer.json()["items"]]


@pytest.fixture(scope="module")
def landed() -> Iterator[LandedHome]:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    _move(folder)
    ids = json.loads((folder / "story.json").read_text(encoding="utf-8"))
    product = Product(home=folder / "home").start()
    try:
        with product.api(ids["token"]) as client:
            yield LandedHome(product, client, ids)
    finally:
        product.close()
        shutil.rmtree(folder, ignore_errors=True)


def _move(folder: Path) -> None:
    """The folder stands elsewhere now than on the machine that made the home."""
    with dbapi_module().connect(folder / "home" / "holdfast.sqlite") as connection:
        for statement in MOVED:
            connection.execute(statement, (MADE_IN, str(folder)))


def test_everything_said_before_the_upgrade_is_readable_and_found(landed: LandedHome) -> None:
    assert "The file is written." in landed.texts("worked")
    assert "A message of the fork." in landed.texts("forked")
    assert landed.session("ended")["state"] == "ended"
    hits = landed.client.get("/search", params={"q": "kingfisher"}).json()["items"]
    assert landed.ids["worked"] in {hit["session_id"] for hit in hits}


def test_a_run_that_the_upgrade_interrupted_is_finished_once(landed: LandedHome) -> None:
    landed.wait_until("interrupted", "idle")
    run = landed.client.get(
        f"/sessions/{landed.ids['interrupted']}/runs/{landed.ids['interrupted_run']}"
    ).json()
    assert run["state"] == "done"
    assert landed.texts("interrupted").count("Finished after the upgrade.") == 1


def test_a_session_paused_before_the_upgrade_is_resumed_after_it(landed: LandedHome) -> None:
    checkpoint_id = landed.session("paused")["current_checkpoint"]
    path = f"/sessions/{landed.ids['paused']}/checkpoints/{checkpoint_id}/resume"
    assert landed.client.post(path, json={}).status_code == 200
    landed.wait_until("paused", "idle")
    assert landed.texts("paused")[-1] == "Resumed by the new version."


def test_a_session_of_before_takes_messages_and_uses_its_folder(landed: LandedHome) -> None:
    script = {"script": [{"call": "read_file", "arguments": {"path": "a.txt"}}, {"say": "Read."}]}
    path = f"/sessions/{landed.ids['worked']}/messages"
    answer = landed.client.post(path, json={"content": json.dumps(script)})
    assert answer.status_code == 202, answer.text
    landed.wait_until("worked", "idle")
    texts = landed.texts("worked")
    assert texts[-1] == "Read."
    assert "first" in texts[-2]


def test_a_chat_of_before_goes_on_with_its_session(landed: LandedHome) -> None:
    chat = landed.client.get("/chats/u1/c1").json()
    assert chat["message_count"] == 1
    said = landed.client.post("/chats/u1/c1/messages", json={"content": "Still there?"}).json()
    assert said["session_id"] == chat["session_id"]
    wait_for(
        lambda: landed.client.get("/chats/u1/c1").json()["message_count"] == 2, "the next answer"
    )


def test_the_store_of_before_is_consistent(landed: LandedHome) -> None:
    token = landed.product.token()
    with landed.product.api(token) as administrator:
        answer = administrator.post("/admin/consistency", params={"mode": "deep"})
    assert answer.json()["issues"] == []
