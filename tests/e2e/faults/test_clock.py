"""A clock that jumps by hours, forth and back: runs end, order stays, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.servers.product import Product
from tests.support.waiting import wait_for

LIBRARIES = (Path("/usr/lib"), Path("/usr/local/lib"))


@pytest.fixture
def clock(tmp_path: Path) -> Callable[[str], None]:
    """Sets the wall clock of the Python parts to an offset such as `+2h`."""

    def jump(offset: str) -> None:
        (tmp_path / "clock.new").write_text(offset + "\n")
        (tmp_path / "clock.new").rename(tmp_path / "clock")

    jump("+0")
    return jump


@pytest.fixture
def jumping(clock: Callable[[str], None], tmp_path: Path) -> Iterator[Product]:
    found = [path for root in LIBRARIES for path in root.glob("**/libfaketime.so.1")]
    if not found:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    product = Product(
        environment={
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    yield product.start()
    product.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_jumping_clock_changes_no_order_and_stops_no_run(
    jumping: Product, clock: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    with jumping.api(jumping.token()) as client:
        loaded = client.post("/projects/load", json={"path": str(tmp_path / "work")})
        made = client.post(f"/projects/{loaded.json()['id']}/sessions", json={})
        path = f"/sessions/{made.json()['id']}"
        for offset in ("+0", "+2h", "-3h", "+0"):
            run(client, path, offset, lambda offset=offset: clock(offset))  # type: ignore[misc]
        items: list[dict[str, Any]] = client.get(f"{path}/messages").json()["items"]
        asked = [one["content"].split("\n")[0] for one in items if one["role"] == "operator"]
        assert asked == ["+0", "+2h", "-3h", "+0"]
        assert [one["seq"] for one in items] == sorted(one["seq"] for one in items)
        # The clock of the worker did jump, or nothing was tried.
        told = [one["created_at"] for one in items if one["role"] == "primary"]
        hours = [round((at - told[0]) / 3_600_000) for at in told]
        assert {2, -3} <= set(hours), hours
        report = client.post("/admin/consistency", params={"mode": "deep"}).json()
        assert report["status"] == "ok", report


def run(client: httpx2.Client, path: str, word: str, jump: Callable[[], None]) -> None:
    """A run of some seconds in whose middle the clock jumps."""
    script = '[{"deltas": 60, "every_ms": 20}, {"call": "shell", "arguments": {"command": "date"}}]'
    answer = client.post(f"{path}/messages", json={"content": f"{word}\n```script\n{script}\n```"})
    assert answer.status_code == 202, answer.text
    jump()
    wait_for(lambda: client.get(path).json()["state"] == "idle", f"run {word}", timeout_s=120.0)
    runs = client.get(f"{path}/runs").json()["items"]
    assert {one["state"] for one in runs} == {"done"}, runs
