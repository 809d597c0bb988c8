"""`holdfast up`: what it writes and prints, what it restarts, and what it refuses to start on."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from cli import credentials
from cli.supervisor import process
from tests.support.product import PARTS, Product
from tests.support.waiting import wait_for


@pytest.fixture
def unstarted() -> Iterator[Product]:
    product = Product()
    yield product
    product.close()


def end_of(product: Product) -> tuple[int, str]:
    """What an `up` that cannot go on exits with, and everything it said."""
    answer = product.command("up")
    return answer.returncode, answer.stdout + answer.stderr


def test_run_json_names_every_part_and_is_private(product: Product) -> None:
    run = product.run_json()
    assert set(run["pids"]) == set(PARTS)
    assert run["api_url"] == product.url
    assert run["temporal_address"].startswith("127.0.0.1:")
    assert httpx2.get(run["temporal_ui_url"], trust_env=False).status_code == 200
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
    code, words = end_of(product)
    assert code == 1
    assert f"supervisor pid {product.pids()['supervisor']}" in words
    assert "ready" not in words
    product.wait_until_ready()


def test_a_clean_stop_leaves_nothing_but_the_terminal_host(product: Product) -> None:
    pids = product.pids()
    assert product.stop() == 0
    assert product.run_json() == {}
    assert [part for part in PARTS if process.birth(pids[part])] == ["terminal"]
    assert "terminal" in product.command("down").stdout
    assert process.birth(pids["terminal"]) is None


def test_a_taken_port_is_said_by_name(unstarted: Product) -> None:
    port = int(unstarted.url.rpartition(":")[2])
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, words = end_of(unstarted)
    assert code == 78
    assert f"port {port} on 127.0.0.1 is in use" in words


def test_a_mistake_in_the_configuration_is_named_and_not_retried(unstarted: Product) -> None:
    (unstarted.home / "config.toml").write_text("[limits]\nsessions = 3\n")
    code, words = end_of(unstarted)
    assert code == 78
    assert f'{unstarted.home / "config.toml"}: unknown key "limits.sessions"' in words


def test_a_database_newer_than_the_code_is_refused_with_what_to_do(unstarted: Product) -> None:
    database = sqlite3.connect(unstarted.home / "holdfast.sqlite")
    database.execute("CREATE TABLE alembic_version (version_num TEXT)")
    database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.commit()
    database.close()
    answer = unstarted.command("api")
    assert answer.returncode == 78
    assert "revision 9999, newer than this Holdfast knows" in answer.stderr


def test_a_damaged_database_is_refused_with_what_to_do(unstarted: Product) -> None:
    (unstarted.home / "holdfast.sqlite").write_bytes(b"this is no database" * 500)
    answer = unstarted.command("api")
    assert answer.returncode == 78
    assert "Put back a backup" in answer.stderr


def test_a_public_address_without_an_operator_is_refused(unstarted: Product) -> None:
    port = unstarted.url.rpartition(":")[2]
    unstarted.extra_environment["HOLDFAST_BIND"] = f"0.0.0.0:{port}"
    answer = unstarted.command("api")
    assert answer.returncode == 78
    assert "holdfast operator add" in answer.stderr
