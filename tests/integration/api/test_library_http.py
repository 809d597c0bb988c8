"""The library of sessions over HTTP, with the workflows doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.domain.clock import now_ms
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Operator, SessionRow
from holdfast.storage.projects import operators
from holdfast.storage.sessions import messages
from tests.support.command_line import run_here
from tests.support.hermes_sample import write_state_db
from tests.support.servers.api_server import ApiServer, Caller


@pytest.fixture
def session(caller: Caller, tmp_path: Path) -> dict[str, Any]:
    project = caller.project(tmp_path / "folder")
    made = caller.session(project["id"], title="First", source="cli")
    add(caller, made["id"], "operator", "please mend the (zebra) parser")
    add(caller, made["id"], "primary", "the zebra is mended")
    return made


def add(caller: Caller, session_id: str, role: str, content: str) -> str:
    """A message as a run leaves it."""
    return caller.api.store.write(
        lambda db: messages.append(db, session_id, role=role, content=content).id
    )


def get(caller: Caller, path: str, **params: Any) -> dict[str, Any]:
    """A GET that must succeed."""
    answer = caller.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("H-036")
def test_the_command_line_lists_the_twenty_most_recent_sessions_and_more_on_demand(
    caller: Caller, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [caller.session(session["project_id"])["id"] for _ in range(22)]
    for number, one in enumerate(made):
        add(caller, one, "operator", f"question {number}")
    add(caller, session["id"], "operator", "asked last of all")
    monkeypatch.setenv("HOLDFAST_URL", caller.api.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", caller.http.headers["authorization"].split()[1])

    code, out, err = run_here("ls", "--json")

    assert code == 0, err
    listed = json.loads(out)
    assert [one["id"] for one in listed] == [session["id"], *made[:2:-1]]
    assert listed[0]["preview"] == "please mend the (zebra) parser"
    assert listed[1]["preview"] == "question 21"
    _, everything, _ = run_here("ls", "--json", "--limit", "100")
    assert len(json.loads(everything)) == 23
    assert len(get(caller, "/sessions")["items"]) == 23, "a page of the API has 50"


@pytest.mark.req("H-031", "H-032", "H-033")
def test_search_answers_hits_with_their_place(caller: Caller, session: dict[str, Any]) -> None:
    answer = get(caller, "/search", q="zebra", role="assistant,tool", source="cli")
    (item,) = answer["items"]
    assert item["session_id"] == session["id"]
    assert ">>>zebra<<<" in item["snippet"]
    assert [near["role"] for near in item["context"]] == ["operator"]
    assert (answer["ranked"], answer["complete"]) == (True, True)
    assert len(get(caller, "/search", q="zebra", session="First")["items"]) == 2
    assert get(caller, "/search", q="zebra", exclude_source="cli")["items"] == []
    assert get(caller, "/search", q="zebra", project="absent")["items"] == []
    first = get(caller, "/search", q="zebra", limit=1, sort="recency")
    rest = get(caller, "/search", q="zebra", limit=1, sort="recency", cursor=first["next_cursor"])
    assert rest["items"][0]["id"] < first["items"][0]["id"]
    assert rest["next_cursor"] is None


@pytest.mark.req("H-034")
def test_any_text_is_answered(caller: Caller, session: dict[str, Any]) -> None:
    for text in ("", '"', "AND", "(((", "*", "a:b", "💥", "%", "\\", "NEAR(", "^x", "x" * 9_000):
        assert caller.http.get("/search", params={"q": text}).status_code == 200, text
    assert caller.http.get("/search", params={"q": "x", "cursor": "x"}).status_code == 400


@pytest.mark.req("K-002")
def test_nothing_of_anothers_library_shows(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    stranger = api.operator()
    key = session["id"]
    assert get(stranger, "/search", q="zebra")["items"] == []
    assert get(stranger, "/search", q="zebra", session=key)["items"] == []
    assert get(stranger, "/audit")["items"] == []
    assert get(stranger, "/audit", session_id=key)["items"] == []
    assert get(stranger, "/usage")["top_sessions"] == []
    for path in ("lineage", "next-title", "export", "events", "trace"):
        assert stranger.http.get(f"/sessions/{key}/{path}").status_code == 404
    assert stranger.http.get("/resolve", params={"name": "First"}).status_code == 404
    assert stranger.http.put("/aliases/x", json={"session_id": key}).status_code == 404
    assert stranger.http.post(f"/sessions/{key}/purge?confirm=true").status_code == 404
    assert stranger.http.get("/export").text == ""
    stranger.close()


@pytest.mark.req("H-028", "H-029", "H-030")
def test_sessions_answer_to_every_name(caller: Caller, session: dict[str, Any]) -> None:
    key = session["id"]
    put = caller.http.put("/aliases/daily", json={"session_id": "First"})
    assert put.json() == {"name": "daily", "session_id": key}
    # F-007 calls the field `session`.
    assert caller.http.put("/aliases/daily", json={"session": "First"}).json() == put.json()
    assert caller.http.put("/aliases/daily", json={}).status_code == 400
    assert [item["name"] for item in get(caller, "/aliases")["items"]] == ["daily"]
    for name, way in ((key, "id"), ("daily", "alias"), ("First", "title"), (key[:-2], "prefix")):
        found = get(caller, "/resolve", name=name)
        assert (found["session_id"], found["matched_by"]) == (key, way)
        assert get(caller, f"/sessions/{name}")["id"] == key
    assert get(caller, f"/sessions/{key}/next-title")["title"] == "First #2"
    assert caller.http.delete("/aliases/daily").status_code == 200
    assert caller.http.delete("/aliases/daily").status_code == 404
    assert caller.http.get("/resolve", params={"name": "daily"}).status_code == 404


@pytest.mark.req("H-029")
def test_a_title_means_the_newest_of_its_lineage(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "titles")
    titles = ("X", "X #2", "X #10")
    ids = {title: caller.session(project["id"], title=title)["id"] for title in titles}
    for name, meant in (("X", "X #10"), ('"X"', "X"), ("X #2", "X #2")):
        assert get(caller, f"/sessions/{quote(name, safe='')}")["id"] == ids[meant]
        assert get(caller, "/resolve", name=name)["session"]["id"] == ids[meant]


@pytest.mark.req("H-035")
def test_lineage_shows_forks(caller: Caller, session: dict[str, Any]) -> None:
    fork = caller.session(session["project_id"], resume_from=session["id"])
    up = get(caller, f"/sessions/{fork['id']}/lineage")["ancestors"]
    assert [(item["id"], item["depth"]) for item in up] == [(session["id"], 1)]
    down = get(caller, f"/sessions/{session['id']}/lineage")["descendants"]
    assert [(item["id"], item["relation"]) for item in down] == [(fork["id"], "fork")]


@pytest.mark.req("H-039")
def test_sessions_leave_and_come_back(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    key = session["id"]
    assert "## Operator" in caller.http.get(f"/sessions/{key}/export?format=md").text
    page = caller.http.get(f"/sessions/{key}/export?format=html")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "archive" not in get(caller, f"/sessions/{key}/export", redact="1")
    lines = caller.http.get("/export", params={"source": "cli"}).text
    assert json.loads(lines)["progress"] == {"done": 1, "total": 1}
    assert caller.http.post("/sessions/import", content=lines).json()["imported"] is False
    assert caller.http.post(f"/sessions/{key}/purge").status_code == 400
    assert caller.http.post(f"/sessions/{key}/purge?confirm=true").status_code == 200
    assert caller.http.get(f"/sessions/{key}").status_code == 404
    back = caller.http.post("/sessions/import", content=lines)
    assert (back.status_code, back.json()["session_id"]) == (201, key)
    assert len(get(caller, "/search", q="zebra")["items"]) == 2
    both = lines + lines
    here = {"session_id": key, "imported": False, "messages": 2}
    skipped = caller.http.post("/sessions/import", content=both).json()
    assert skipped == {"imported": 0, "skipped": 2, "items": [here, here]}
    for wrong in ("{}", "no json", '{"hermes_path": "/x"}\n'):
        assert caller.http.post("/sessions/import", content=wrong).status_code in (400, 403)


def test_a_hermes_file_is_imported_only_by_whoever_runs_the_server(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    body = {"hermes_path": "/nowhere/state.db"}
    assert caller.http.post("/sessions/import", json=body).status_code == 403
    name = {"name": operators.DEFAULT_OPERATOR}
    api.store.write(lambda db: change(db, Operator, caller.id, **name))
    assert caller.http.post("/sessions/import", json=body).status_code == 404
    for wrong in ({"hermes_path": 1}, {"hermes_path": ""}, {**body, "more": 1}):
        assert caller.http.post("/sessions/import", json=wrong).status_code == 400
    write_state_db(tmp_path / "state.db").close()
    asked = f'\n{{ "hermes_path" : {json.dumps(str(tmp_path / "state.db"))} }}'
    answer = caller.http.post("/sessions/import", content=asked)
    ids = answer.json().pop("session_ids")
    assert answer.status_code == 201
    assert answer.json() == {
        "origin": "hermes", "imported": 2, "skipped": 0, "messages": 5, "session_ids": ids,
    }  # fmt: skip
    assert get(caller, f"/sessions/{ids[0]}")["title"] == "Trip"
    again = caller.http.post("/sessions/import", content=asked).json()
    assert again == {
        "origin": "hermes", "imported": 0, "skipped": 2, "messages": 0, "session_ids": [],
    }  # fmt: skip


@pytest.mark.req("H-040", "H-041")
def test_sessions_are_cleared_and_pruned(caller: Caller, session: dict[str, Any]) -> None:
    key = session["id"]
    assert caller.http.delete(f"/sessions/{key}/messages").status_code == 400
    cleared = caller.http.delete(f"/sessions/{key}/messages?confirm=true").json()
    assert cleared["messages_cleared"] == 2
    old = now_ms() - 200 * 86_400_000
    caller.api.store.write(lambda db: change(db, SessionRow, key, state="ended", ended_at=old))
    dry = caller.http.post("/sessions/prune", json={"older_than_days": 90, "dry_run": True})
    assert dry.json()["session_ids"] == [key]
    assert caller.http.post("/sessions/prune", json={}).json()["count"] == 1
    assert caller.http.post("/sessions/prune").json()["count"] == 0
    assert caller.http.get(f"/sessions/{key}").status_code == 404


@pytest.mark.req("H-041")
def test_a_cleared_fork_shows_nothing_of_its_source(
    caller: Caller, session: dict[str, Any]
) -> None:
    fork = caller.session(session["project_id"], resume_from=session["id"])["id"]
    add(caller, fork, "operator", "a third message")
    cleared = caller.http.delete(f"/sessions/{fork}/messages?confirm=true").json()
    assert cleared == {"session_id": fork, "messages_cleared": 3}
    for path in (f"/sessions/{fork}/messages", f"/sessions/{fork}/export"):
        shown = get(caller, path)
        assert shown.get("items", shown.get("messages")) == []
    assert len(get(caller, f"/sessions/{session['id']}/messages")["items"]) == 2
    exported = caller.http.get(f"/sessions/{fork}/export").content
    assert b"zebra" not in exported
    for key in (fork, session["id"]):
        assert caller.http.post(f"/sessions/{key}/purge?confirm=true").status_code == 200
    assert caller.http.post("/sessions/import", content=exported).status_code == 201
    assert get(caller, f"/sessions/{fork}")["forked_from"] == session["id"]
    assert get(caller, f"/sessions/{fork}/messages")["items"] == []


@pytest.mark.req("K-131", "F-023", "F-024")
def test_events_and_their_causes(caller: Caller, session: dict[str, Any]) -> None:
    key = session["id"]
    listed = get(caller, f"/sessions/{key}/events", limit=2)
    assert [item["seq"] for item in listed["items"]] == [1, 2]
    more = get(caller, f"/sessions/{key}/events", cursor=listed["next_cursor"])
    assert [item["seq"] for item in more["items"]] == [3]
    assert get(caller, f"/sessions/{key}/events", since=2)["items"] == more["items"]
    lines = caller.http.get(f"/sessions/{key}/events", params={"format": "ndjson"}).text
    assert [json.loads(line)["seq"] for line in lines.splitlines()] == [1, 2, 3]
    by_seq = get(caller, f"/sessions/{key}/trace", event="2")
    assert by_seq == get(caller, f"/sessions/{key}/trace", event=by_seq["id"])
    assert by_seq["summary"].startswith("operator said: please mend")
    assert by_seq["row"]["role"] == "operator"
    assert by_seq["causes"] == []
    assert len(get(caller, f"/sessions/{key}/trace")["items"]) == 3
    assert caller.http.get(f"/sessions/{key}/trace?event=99").status_code == 404
    audited = get(caller, "/audit", session_id=key, type="message.*", limit=1)
    assert audited["items"][0]["seq"] == 3
    older = get(caller, "/audit", type="message.added", cursor=audited["next_cursor"], limit=1)
    assert older["items"][0]["seq"] == 2
    assert get(caller, "/audit", since=now_ms() + 60_000)["items"] == []


def test_the_store_reports_on_itself(caller: Caller, session: dict[str, Any]) -> None:
    get(caller, "/search", q="zebra")
    report = get(caller, "/admin/storage")
    assert report["row_counts"]["messages"] >= 2
    assert report["database"]["bytes"] > 0
    assert report["database"]["search_bytes"] > 0
    assert report["largest_sessions"][0]["id"] == session["id"]
    assert caller.http.post("/admin/reindex").json()["state"] == "building"
    assert len(get(caller, "/search", q="zebra")["items"]) == 2
    assert get(caller, "/admin/reindex")["state"] == "ready"
