"""Secrets stay where they belong, and nothing in the home is open to others."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.cli import credentials
from tests.conftest import PROVIDER_KEY, Account
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

# Content is in the database and nowhere else; these hold it on purpose.
CONTENT_FILES = ("holdfast.sqlite",)
FILE_BYTES_MAX = 512 * 1024 * 1024


def files_of(home: Path) -> Iterator[Path]:
    for path in home.rglob("*"):
        if path.is_file() and path.stat().st_size <= FILE_BYTES_MAX:
            yield path


def holders(home: Path, secret: str) -> set[str]:
    """The files that contain these bytes; a file may go away while we look."""
    found = set()
    for path in files_of(home):
        try:
            if secret.encode() in path.read_bytes():
                found.add(str(path.relative_to(home)))
        except FileNotFoundError:
            continue
    return found


def arguments_of_all() -> bytes:
    """The process list as `ps` would show it to anybody."""
    shown = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown.append(path.read_bytes())
        except OSError:
            continue
    return b"\n".join(shown)


@pytest.fixture
def used(
    client: httpx2.Client,
    new_session: Callable[..., dict[str, Any]],
    run_message: Callable[..., dict[str, Any]],
) -> dict[str, Any]:
    """A session with a run, a refused request and a terminal behind it."""
    # Its own title, because titles are shown in the Temporal UI on purpose.
    session = new_session(title="A session")
    run_message(session["id"], "a very private question wordprivate")
    client.post(f"/sessions/{session['id']}/messages", json={"nonsense": 1})
    command = {"command": "env; echo that-is-all; cat"}
    opened = client.post(f"/sessions/{session['id']}/ptys", json=command)
    assert opened.status_code == 201, opened.text
    path = f"/sessions/{session['id']}/ptys/{opened.json()['pty_id']}"
    wait_for(lambda: "that-is-all" in client.get(f"{path}/transcript").text, "what `env` says")
    client.delete(path)
    return session


def test_a_token_is_in_no_file_but_its_own(
    product: Product, operator: Account, used: dict[str, Any]
) -> None:
    # The search sees into Temporal's history, where the session is by its id.
    assert any(name.startswith("temporal.db") for name in holders(product.home, used["id"]))
    assert holders(product.home, operator.token) == set()
    assert holders(product.home, product.token()) == {"token"}


def test_a_launch_link_and_the_cookie_it_gives_are_in_no_file(
    product: Product, operator: Account
) -> None:
    token = credentials.new_launch_token(product.settings(), operator.name)
    with httpx2.Client(base_url=product.url, trust_env=False, timeout=120.0) as browser:
        assert browser.get("/launch", params={"token": token}).status_code == 303
        cookie = browser.cookies["holdfast_session"]
        assert browser.get("/api/v1/sessions").status_code == 200
        assert browser.get("/launch", params={"token": token}).status_code == 401
    assert holders(product.home, token) == set()
    assert holders(product.home, cookie) == set()


def test_a_providers_key_is_in_no_file_and_in_no_argument(
    product: Product, used: dict[str, Any]
) -> None:
    worker = Path(f"/proc/{product.pids()['worker']}")
    assert PROVIDER_KEY.encode() in (worker / "environ").read_bytes(), "the worker has it"
    assert holders(product.home, PROVIDER_KEY) == set()
    assert PROVIDER_KEY.encode() not in arguments_of_all()


def test_a_wrong_token_is_not_logged_either(product: Product) -> None:
    guess = "hf_guessed-by-a-stranger"
    with product.api(guess) as stranger:
        assert stranger.get("/sessions").status_code == 401
    assert holders(product.home, guess) == set()


def test_no_process_shows_a_token_in_its_arguments(
    product: Product, operator: Account, used: dict[str, Any]
) -> None:
    everything = arguments_of_all()
    assert b"holdfast.cli.part" in everything, "our processes are in the list"
    for token in (operator.token, product.token()):
        assert token.encode() not in everything


def test_what_a_shell_sees_holds_no_token(
    product: Product, client: httpx2.Client, operator: Account, used: dict[str, Any]
) -> None:
    pty_id = client.get(f"/sessions/{used['id']}/ptys").json()["items"][0]["pty_id"]
    shown = client.get(f"/sessions/{used['id']}/ptys/{pty_id}/transcript").text
    assert "PATH=" in shown
    # The mark by which a process tree is found again is no secret.
    assert re.findall(r"HOLDFAST_\w+", shown) == ["HOLDFAST_PROCESS"]
    assert PROVIDER_KEY not in shown
    assert operator.token not in shown
    assert product.token() not in shown


def test_an_export_of_everything_holds_no_token(
    product: Product, client: httpx2.Client, operator: Account, used: dict[str, Any]
) -> None:
    shown = client.get("/export").text
    assert "wordprivate" in shown
    assert operator.token not in shown
    assert product.token() not in shown


@pytest.mark.parametrize("form", ["json", "md", "html"])
def test_an_export_holds_no_token(
    product: Product, client: httpx2.Client, operator: Account, used: dict[str, Any], form: str
) -> None:
    shown = client.get(f"/sessions/{used['id']}/export", params={"format": form}).text
    assert "wordprivate" in shown
    assert operator.token not in shown
    assert product.token() not in shown


def test_what_was_said_never_enters_temporal_or_a_log(
    product: Product, used: dict[str, Any]
) -> None:
    names = holders(product.home, "wordprivate")
    assert names
    assert {name for name in names if not name.startswith(CONTENT_FILES)} == set()


def test_nobody_else_may_read_anything_in_the_home(product: Product, used: dict[str, Any]) -> None:
    opened = []
    for path in [product.home, *product.home.rglob("*")]:
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            continue
        if mode & 0o077 and not path.is_symlink():
            opened.append(f"{path.relative_to(product.home)} {mode:o}")
    assert opened == [], "\n".join(opened)
