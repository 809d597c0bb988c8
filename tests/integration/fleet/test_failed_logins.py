"""Wrong tokens are counted for all APIs of a database together, and never for good ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import func, select

from api.auth import FAILURES_PER_MINUTE
from holdfast.domain import clock
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_history import FailedLogin
from holdfast.storage.projects import failed_logins
from tests.support.servers.api_server import ApiServer


@pytest.fixture
def two_apis(postgres_url: str, tmp_path: Path) -> Iterator[tuple[ApiServer, ApiServer]]:
    """Two APIs, each with a store of its own, on one Postgres database."""
    with ExitStack() as stack:
        apis = []
        for name in ("one", "two"):
            store = open_store(postgres_url, tmp_path / name)
            stack.callback(store.close)
            api = ApiServer(store, tmp_path / f"api-{name}").start()
            stack.callback(api.stop)
            apis.append(api)
        yield apis[0], apis[1]


def guess(api: ApiServer) -> int:
    headers = {"Authorization": "Bearer hf_wrong"}
    url = f"{api.url}/api/v1/sessions"
    return httpx2.get(url, headers=headers, trust_env=False, timeout=60.0).status_code


def rows(store: OpenStore) -> int:
    return store.read(
        lambda db: int(
            db.connection()
            .execute(select(func.coalesce(func.sum(table(FailedLogin).c.count), 0)))
            .scalar_one()
        )
    )


def test_wrong_tokens_at_two_apis_are_counted_together(
    two_apis: tuple[ApiServer, ApiServer],
) -> None:
    one, two = two_apis
    half = FAILURES_PER_MINUTE // 2
    assert {guess(one) for _ in range(half)} == {401}
    assert {guess(two) for _ in range(half)} == {401}
    assert guess(two) == 429
    assert guess(one) == 429
    caller = one.operator()
    before = rows(one.store)
    assert caller.http.get("/sessions").status_code == 200
    caller.close()
    assert rows(one.store) == before == FAILURES_PER_MINUTE + 2


def test_a_flood_of_wrong_tokens_at_one_api_is_no_flood_of_writes(
    two_apis: tuple[ApiServer, ApiServer],
) -> None:
    one, _ = two_apis
    assert 429 in {guess(one) for _ in range(FAILURES_PER_MINUTE + 40)}
    assert rows(one.store) == FAILURES_PER_MINUTE


def test_counters_are_forgotten_after_a_minute(
    either_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now_ms()
    assert [either_store.write(lambda db: failed_logins.count(db, "a")) for _ in range(3)] == [
        1,
        2,
        3,
    ]
    assert either_store.write(lambda db: failed_logins.count(db, "b")) == 1
    assert either_store.write(failed_logins.sweep) == 0
    later = now + failed_logins.WINDOW_MS + failed_logins.SLOT_MS
    monkeypatch.setattr(failed_logins, "now_ms", lambda: later)
    assert either_store.write(lambda db: failed_logins.count(db, "a")) == 1
    assert either_store.write(failed_logins.sweep) == 2
    assert rows(either_store) == 1
