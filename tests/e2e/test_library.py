"""The library of sessions, on the whole product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.waiting import wait_for

Run = Callable[..., dict[str, Any]]


@pytest.mark.req("H-031", "H-033", "H-037", "H-039", "F-024")
def test_what_was_said_is_found_titled_counted_traced_and_exported(
    client: httpx2.Client, session: dict[str, Any], run_message: Run
) -> None:
    path = f"/sessions/{session['id']}"
    run_message(session["id"], "Find where the ocelot-7 sleeps")
    items = client.get("/search", params={"q": "ocelot-7"}).json()["items"]
    assert {item["role"] for item in items} == {"operator", "primary"}
    assert all(">>>ocelot-7<<<" in item["snippet"] for item in items)

    def titled() -> Any:
        return client.get(path).json()["title"]

    assert wait_for(titled, "the session's title") == "Find where the ocelot-7 sleeps"
    assert client.get("/sessions/Find where the ocelot-7 sleeps").json()["id"] == session["id"]
    usage = client.get("/usage").json()
    assert usage["by_model"][0]["calls"] == 1
    assert usage["top_sessions"][0]["session_id"] == session["id"]
    heads = client.get("/audit", params={"type": "head.created"}).json()["items"]
    traced = client.get(f"{path}/trace", params={"event": heads[0]["id"]}).json()
    assert "run.created" in [item["type"] for item in traced["chain"]]
    page = client.get(f"{path}/export", params={"format": "html"})
    assert "ocelot-7" in page.text
    exported = client.get(f"{path}/export").text
    assert client.post(f"{path}/purge", params={"confirm": True}).status_code == 200
    assert client.get("/search", params={"q": "ocelot-7"}).json()["items"] == []
    assert client.post("/sessions/import", content=exported).json()["imported"] is True
    assert len(client.get("/search", params={"q": "ocelot-7"}).json()["items"]) == 2
    # It goes on where it was: the workflow is started again from the rows.
    run_message(session["id"], "And where does it eat?")
    report = client.post("/admin/consistency", params={"mode": "quick"}).json()
    mine = [issue for issue in report["issues"] if issue["session_id"] == session["id"]]
    assert mine == []
