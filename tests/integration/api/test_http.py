"""What holds for every request: who may ask, how errors look, and how much may be sent."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from api.auth import FailedLogins
from holdfast.domain.errors import RateLimited
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Token
from holdfast.storage.projects import operators
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.workflow_double import WorkflowDouble

LISTS = ("runs", "checkpoints", "compactions", "heads", "events", "messages", "trace")
PAGES_MAX = 100


@pytest.fixture
def plain(api: ApiServer) -> Iterator[httpx2.Client]:
    """A client without a token."""
    with httpx2.Client(base_url=api.url, trust_env=False, timeout=120.0) as client:
        yield client


def test_what_needs_no_token_answers_without_one(plain: httpx2.Client) -> None:
    for path in (
        "/healthz",
        "/api/v1/versions",
        "/api/v1/dsl/schema",
        "/",
        "/metrics",
        "/api/v1/metrics",
    ):
        answer = plain.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["x-request-id"]
    assert "Holdfast" in plain.get("/").text
    assert "holdfast_http_requests_total" in plain.get("/metrics").text


def test_everything_else_is_refused_without_a_good_token(plain: httpx2.Client) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
        answer = plain.get("/api/v1/sessions", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_not_ready_is_said_with_what_is_missing(own_api: ApiServer) -> None:
    answer = httpx2.get(f"{own_api.url}/readyz", trust_env=False, timeout=120.0)
    assert answer.status_code == 503
    assert "temporal" in answer.json()["error"]["details"]


def test_a_token_is_stored_only_as_its_hash(api: ApiServer, caller: Caller) -> None:
    def stored(db: Db) -> list[str]:
        from sqlmodel import select

        return [row.token_hash for row in db.exec(select(Token))]

    hashes = api.store.read(stored)
    assert hashlib.sha256(caller.token.encode()).hexdigest() in hashes
    assert caller.token not in hashes


def test_a_revoked_token_is_worth_nothing(api: ApiServer, caller: Caller) -> None:
    assert caller.http.get("/sessions").status_code == 200
    assert api.store.write(lambda db: operators.revoke_all(db, caller.id))
    assert caller.http.get("/sessions").status_code == 401


def test_a_launch_link_works_once_and_the_cookie_needs_our_origin(
    api: ApiServer, caller: Caller, plain: httpx2.Client
) -> None:
    token = api.store.write(lambda db: operators.issue_token(db, caller.id, kind="launch"))
    answer = plain.get("/launch", params={"token": token})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie.replace("Strict", "strict")
    assert plain.get("/launch", params={"token": token}).status_code == 401
    assert plain.get("/api/v1/sessions").status_code == 200
    body = {"path": "/nowhere"}
    for origin in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        answer = plain.post("/api/v1/projects/load", json=body, headers=origin)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    answer = plain.post("/api/v1/projects/load", json=body, headers={"Origin": api.url})
    assert answer.status_code == 404


def test_a_launch_token_is_no_bearer_token(api: ApiServer, caller: Caller) -> None:
    token = api.store.write(lambda db: operators.issue_token(db, caller.id, kind="launch"))
    answer = caller.http.get("/sessions", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401


def test_a_rebound_name_is_not_served(plain: httpx2.Client) -> None:
    for host in ("evil.example", "evil.example:8420", "[::1", "a b"):
        answer = plain.get("/healthz", headers={"Host": host})
        assert answer.status_code in (400, 403), host
    assert plain.get("/healthz", headers={"Host": "localhost:9"}).status_code == 200


def test_a_body_over_a_mebibyte_is_refused(caller: Caller) -> None:
    large = b'{"path": "' + b"x" * (1024 * 1024) + b'"}'
    answer = caller.http.post("/projects/load", content=large)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 64 * 1024

    answer = caller.http.post("/projects/load", content=pieces())
    assert answer.status_code == 413


def test_errors_have_one_shape(caller: Caller) -> None:
    json_type = {"Content-Type": "application/json"}
    answers = [
        caller.http.get("/nothing/here"),
        caller.http.patch("/projects"),
        caller.http.get("/sessions", params={"limit": "many"}),
        caller.http.post("/projects/load", content=b"{broken", headers=json_type),
        caller.http.post("/projects/load", content=b"\xff\xfe", headers=json_type),
        caller.http.post("/projects/load", content=b'{"path": "/\\ud800"}', headers=json_type),
        caller.http.get("/sessions/%00"),
        caller.http.get("/sessions/unknown"),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500, answer.text
        assert set(answer.json()) == {"error"}
        assert {"code", "message"} <= set(answer.json()["error"])
        assert answer.headers["x-request-id"]


def test_any_text_is_a_valid_query(caller: Caller) -> None:
    for text in ("\0", "a\0b", '"', "NEAR(", "\U0001f389"):
        assert caller.http.get("/search", params={"q": text}).status_code == 200


def test_a_request_keeps_the_id_it_came_with(caller: Caller) -> None:
    answer = caller.http.get("/sessions", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    odd = caller.http.get("/sessions", headers={"X-Request-Id": "a b\tc"})
    assert odd.headers["x-request-id"] != "a b\tc"


async def test_whoever_guesses_tokens_is_slowed_down(sqlite_store: OpenStore) -> None:
    logins = FailedLogins(sqlite_store, per_minute=3)
    for _ in range(3):
        await logins.count("10.0.0.1")
    with pytest.raises(RateLimited):
        await logins.count("10.0.0.1")
    await logins.count("10.0.0.2")


GUESSES: dict[str, dict[str, Any]] = {
    "bearer": {"url": "/api/v1/sessions", "headers": {"Authorization": "Bearer guess"}},
    "cookie": {"url": "/api/v1/sessions", "headers": {"Cookie": "holdfast_session=guess"}},
    "launch": {"url": "/launch", "params": {"token": "guess"}},
}


@pytest.mark.parametrize("way", GUESSES)
def test_every_way_to_guess_a_token_is_limited_and_a_good_one_goes_on(
    own_api: ApiServer, way: str
) -> None:
    own_api.app.state.failed_logins = FailedLogins(own_api.store, per_minute=2)
    somebody = own_api.operator()
    with httpx2.Client(base_url=own_api.url, trust_env=False, timeout=120.0) as stranger:
        answers = [stranger.get(**GUESSES[way]) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [401, 401, 429, 429]
    assert answers[-1].json()["error"]["code"] == "rate_limited"
    assert answers[-1].headers["retry-after"]
    with pytest.raises(InvalidStatus) as refused:
        somebody.socket("/system/socket", headers={"Authorization": "Bearer guess"})
    assert refused.value.response.status_code == 429
    assert somebody.http.get("/sessions").status_code == 200
    somebody.close()


def test_the_api_imports_neither_worker_nor_agent_nor_alembic() -> None:
    async def loaded() -> str:
        import sys

        words = "import api.main, sys; print([name for name in sys.modules if name in "
        words += "('temporalio', 'workflows', 'pydantic_ai', 'alembic', 'numpy',"
        words += " 'httpx2')])"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", words, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out.decode().strip()

    assert asyncio.run(loaded()) == "[]"


def test_every_list_is_read_page_by_page(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "paged")
    workflow = WorkflowDouble(caller.api.store)
    session = caller.session(project["id"])["id"]
    for number in range(3):
        said = workflow.say(session, f"message {number}")
        run = workflow.begin(session)
        workflow.resume(session, workflow.pause(session).id)
        workflow.finish(run)
        workflow.compact(session, [said.id])
        issue = caller.http.post(f"/projects/{project['id']}/issues", json={"title": str(number)})
        assert issue.status_code == 201
    lists = [f"/sessions/{session}/{name}" for name in LISTS]
    for path in (*lists, f"/projects/{project['id']}/issues", "/audit"):
        whole = caller.http.get(path, params={"limit": 500}).json()
        assert whole["next_cursor"] is None
        assert len(whole["items"]) >= 3, path
        assert paged(caller, path) == whole["items"], path


def paged(caller: Caller, path: str) -> list[dict[str, Any]]:
    """The items of a list that is read two at a time."""
    params: dict[str, Any] = {"limit": 2}
    items: list[dict[str, Any]] = []
    for _ in range(PAGES_MAX):
        page = caller.http.get(path, params=params).json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        assert len(page["items"]) == 2, path
        params["cursor"] = page["next_cursor"]
    raise AssertionError(f"{path} has no end")
