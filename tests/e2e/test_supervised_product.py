"""`holdfast up`: what it writes and prints, what it restarts, and who takes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from holdfast.cli import credentials
from holdfast.supervisor import process
from tests.support.servers.product import PARTS, Product
from tests.support.waiting import wait_for


def test_run_json_names_every_part_and_is_private(product: Product) -> None:
    run = product.run_json()
    assert set(run["pids"]) == set(PARTS)
    assert run["api_url"] == product.url
    assert run["temporal_address"].startswith("127.0.0.1:")
    assert run["temporal_ui_url"] == f"{product.url}/temporal/"
    for name in ("run.json", "token", "holdfast.sqlite"):
        assert (product.home / name).stat().st_mode & 0o077 == 0, name


def test_the_launch_url_signs_a_browser_in_once(product: Product) -> None:
    token = credentials.new_launch_token(product.settings(), "local")
    url = f"{product.url}/launch?token={token}"
    with httpx2.Client(trust_env=False) as browser:
        first = browser.get(url)
        assert first.status_code in {200, 302, 303, 307}, first.text
        assert "holdfast_session" in browser.cookies
        assert browser.get(f"{product.url}/api/v1/sessions").status_code == 200
    with httpx2.Client(trust_env=False) as another:
        assert another.get(url).status_code in {400, 401, 403, 404, 410}
        assert "holdfast_session" not in another.cookies


def test_what_up_prints_leads_to_a_session(product: Product) -> None:
    said = "".join(product.lines)
    before, _, _ = said.partition("ready")
    assert "/launch?token=" in before
    assert product.run_json()["temporal_ui_url"] in before
    assert str(product.home / "token") in before


@pytest.mark.req("K-004")
def test_every_killed_part_is_started_again(product: Product) -> None:
    before = product.pids()
    parts = ("api", "worker", "temporal", "terminal")
    for part in parts:
        product.kill(part)
    wait_for(
        lambda: all(product.pids().get(part, before[part]) != before[part] for part in parts),
        "all parts to be started again",
    )
    product.wait_until_ready()
    assert product.pids()["supervisor"] == before["supervisor"]


@pytest.mark.req("K-004")
def test_a_new_supervisor_takes_over_from_a_killed_one(
    product: Product,
    client: httpx2.Client,
    session: dict[str, Any],
    run_message: Callable[..., dict[str, Any]],
) -> None:
    run_message(session["id"], "before the kill")
    before = product.pids()
    product.kill("supervisor")
    wait_for(lambda: process.birth(before["supervisor"]) is None, "the supervisor to be gone")
    product.wait_until_ready()  # the parts go on without their supervisor
    product.start()
    after = product.pids()
    assert after["terminal"] == before["terminal"], "terminals outlive the supervisor"
    assert not any(process.birth(before[part]) for part in ("api", "worker", "temporal"))
    said = client.get(f"/sessions/{session['id']}/messages").json()["items"]
    assert said[0]["content"] == "before the kill"
    run_message(session["id"], "after it")


def test_a_second_up_in_the_same_home_is_refused(product: Product) -> None:
    answer = product.command("up")
    words = answer.stdout + answer.stderr
    assert answer.returncode == 1
    assert f"supervisor pid {product.pids()['supervisor']}" in words
    assert "ready" not in words
    product.wait_until_ready()


@pytest.mark.slow
def test_a_clean_stop_leaves_nothing_but_the_terminal_host(product: Product) -> None:
    pids = product.pids()
    assert product.stop() == 0
    assert product.run_json() == {}
    assert [part for part in PARTS if process.birth(pids[part])] == ["terminal"]
    assert "terminal" in product.command("down").stdout
    assert process.birth(pids["terminal"]) is None
