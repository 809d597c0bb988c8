"""Issues over HTTP: numbers, comments, todos, and one live session at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.context import build
from activities.tools.issues import ASK_FIRST, run_issue, run_todo
from holdfast.agent.tools.offering import UNBOUND
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import IssueArguments, TodoArguments
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.issues import issues, todos
from holdfast.storage.moves import checkpoints
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.step_runner import StepRunner


@pytest.fixture
def project(caller: Caller, tmp_path: Path) -> dict[str, Any]:
    return caller.project(tmp_path / "folder")


def write(caller: Caller, project: dict[str, Any], title: str = "Fix it") -> dict[str, Any]:
    answer = caller.http.post(f"/projects/{project['id']}/issues", json={"title": title})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_issues_are_numbered_listed_changed_and_commented(
    caller: Caller, project: dict[str, Any]
) -> None:
    first, second = write(caller, project, "One"), write(caller, project, "Two")
    assert (first["number"], second["number"]) == (1, 2)
    path = f"/projects/{project['id']}/issues"
    page = caller.http.get(f"{path}?limit=1").json()
    assert [one["title"] for one in page["items"]] == ["One"]
    rest = caller.http.get(f"{path}?limit=1&cursor={page['next_cursor']}").json()
    assert [one["title"] for one in rest["items"]] == ["Two"]
    assert rest["next_cursor"] is None
    issue = f"/issues/{first['id']}"
    changed = caller.http.patch(issue, json={"body": "new words", "status": "blocked"}).json()
    assert (changed["body"], changed["original_body"], changed["status"]) == (
        "new words",
        "",
        "blocked",
    )
    assert len(caller.http.get(f"{path}?status=blocked").json()["items"]) == 1
    for body in ("first", "second"):
        assert caller.http.post(f"{issue}/comments", json={"body": body}).status_code == 201
    found = caller.http.get(f"{issue}/comments").json()["items"]
    assert [one["body"] for one in found] == ["first", "second"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"title": ""},
        {"title": "x" * 201},
        {"title": "a", "body": "b" * 16385},
        {"title": "a", "x": 1},
    ],
)
def test_an_issue_that_does_not_fit_is_refused(
    caller: Caller, project: dict[str, Any], body: dict[str, Any]
) -> None:
    answer = caller.http.post(f"/projects/{project['id']}/issues", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "validation_failed"


def test_todos_are_changed_by_operations_or_as_markdown(
    caller: Caller, project: dict[str, Any]
) -> None:
    path = f"/issues/{write(caller, project)['id']}/todos"
    ops = [{"op": "init", "items": ["a", "b"]}, {"op": "done", "text": "a"}]
    changed = caller.http.post(path, json={"ops": ops}).json()
    assert changed["markdown"] == "- [x] a\n- [/] b\n"
    text = caller.http.get(path).json()["markdown"] + "- [ ] c\n"
    assert caller.http.post(path, json={"markdown": text}).json()["markdown"] == text
    text += "- [ ] d\n"
    assert caller.http.post(path, json={"text": "d"}).json()["markdown"] == text
    refused: list[dict[str, Any]] = [
        {},
        {"ops": []},
        {"text": ""},
        {"ops": ops, "markdown": text},
        {"ops": [{"op": "done"}]},
    ]
    for wrong in refused:
        assert caller.http.post(path, json=wrong).status_code == 400
    assert caller.http.get(path).json()["markdown"] == text


@pytest.mark.req("K-113", "K-114", "K-116")
def test_an_issue_has_one_live_session_and_keeps_its_todos(
    caller: Caller, project: dict[str, Any]
) -> None:
    issue = write(caller, project)
    first = caller.session(project["id"], bound_issue=issue["id"])
    assert first["bound_issue"] == issue["id"]
    second = caller.session(project["id"])
    bind = f"/sessions/{second['id']}/bind"
    assert caller.http.put(bind, json={"issue_id": issue["id"]}).status_code == 409
    taken = caller.http.post(
        f"/projects/{project['id']}/sessions", json={"bound_issue": issue["id"]}
    )
    assert taken.status_code == 409
    todo = {"ops": [{"op": "init", "items": ["a"]}]}
    listed = caller.http.post(f"/issues/{issue['id']}/todos", json=todo).json()
    assert caller.http.delete(f"/sessions/{first['id']}/bind").json()["bound_issue"] is None
    bound = caller.http.put(bind, json={"issue_id": issue["id"]})
    assert (bound.status_code, bound.json()["bound_issue"]) == (200, issue["id"])
    assert bound.json()["state"] == second["state"] == "idle"
    assert caller.http.get(f"/issues/{issue['id']}/todos").json() == listed
    assert caller.http.put(bind, json={"issue_id": new_id()}).status_code == 404
    # A session that is over makes room for the next.
    assert caller.http.delete(f"/sessions/{second['id']}?confirm=true").status_code == 200
    third = caller.session(project["id"], bound_issue=issue["id"])
    assert third["bound_issue"] == issue["id"]


@pytest.mark.req("K-002")
def test_another_operators_issue_is_not_there(
    api: ApiServer, caller: Caller, project: dict[str, Any]
) -> None:
    issue = write(caller, project)
    stranger = api.operator()
    try:
        for path in ("", "/todos", "/comments"):
            assert stranger.http.get(f"/issues/{issue['id']}{path}").status_code == 404
        assert stranger.http.patch(f"/issues/{issue['id']}", json={}).status_code == 404
        assert stranger.http.get(f"/projects/{project['id']}/issues").status_code == 404
    finally:
        stranger.close()


class Bound:
    """A session that is bound to an issue."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.shop = StepRunner(store, folder)
        self.issue = store.write(
            lambda db: issues.create(
                db, self.shop.project_id, created_by=self.shop.operator_id, title="Fix it"
            )
        )

    def bind(self) -> None:
        self.shop.store.write(lambda db: issues.bind(db, self.shop.session_id, self.issue.id))

    async def todo(self, *ops: dict[str, Any]) -> ToolOutcome:
        arguments = TodoArguments.model_validate({"ops": list(ops)})
        return await run_todo(self.shop.store, self.shop.session_id, arguments)

    async def act(self, **arguments: str) -> ToolOutcome:
        parsed = IssueArguments.model_validate(arguments)
        return await run_issue(self.shop.store, self.shop.session_id, parsed)


@pytest.fixture
def bound(sqlite_store: OpenStore, tmp_path: Path) -> Bound:
    return Bound(sqlite_store, tmp_path / "p")


@pytest.mark.req("K-115")
async def test_the_tools_ask_for_an_issue_when_none_is_bound(bound: Bound) -> None:
    for outcome in (await bound.todo({"op": "append", "text": "x"}), await bound.act(op="get")):
        assert outcome.is_error
        assert outcome.text == UNBOUND


async def test_the_tools_show_and_change_the_bound_issue(
    either_store: OpenStore, tmp_path: Path
) -> None:
    bound = Bound(either_store, tmp_path / "p")
    bound.bind()
    listed = await bound.todo({"op": "init", "items": ["a", "b"]})
    assert listed.output == {"issue": 1, "todos": "- [/] a\n- [ ] b\n"}
    refused = await bound.todo({"op": "done", "text": "a"}, {"op": "done", "text": "zzz"})
    assert refused.is_error
    assert "Nothing was changed" in refused.text
    assert not (await bound.act(op="comment", body="hm")).is_error
    assert not (await bound.act(op="transition", status="in_progress")).is_error
    shown = await bound.act(op="get")
    assert isinstance(shown.output, dict)
    assert shown.output["status"] == "in_progress"
    assert shown.output["todos"] == "- [/] a\n- [ ] b\n"
    assert [one["body"] for one in shown.output["comments"]] == ["hm"]
    for arguments in (
        {"op": "transition", "status": "closed"},
        {"op": "transition", "status": "odd"},
        {"op": "comment", "body": " "},
        {"op": "comment"},
        {"op": "transition"},
    ):
        assert (await bound.act(**arguments)).is_error


@pytest.mark.req("K-117")
async def test_an_agent_resolves_only_after_its_checkpoint_was_resumed(bound: Bound) -> None:
    bound.bind()
    shop, store = bound.shop, bound.shop.store
    resolve = {"op": "transition", "status": "resolved"}
    run_id = shop.begin("fix it")
    assert (await bound.act(**resolve)).text == ASK_FIRST
    point_id = new_id()
    store.write(
        lambda db: checkpoints.create(
            db,
            store.blobs,
            checkpoint_id=point_id,
            session_id=shop.session_id,
            created_by="model",
            prompts={},
            run_id=run_id,
        )
    )
    assert (await bound.act(**resolve)).is_error
    store.write(
        lambda db: checkpoints.resume(db, store.blobs, shop.session_id, point_id, command_id="")
    )
    assert not (await bound.act(**resolve)).is_error
    shop.finish(run_id)
    shop.begin("one more thing")
    assert (await bound.act(**resolve)).text == ASK_FIRST


@pytest.mark.req("K-118")
async def test_open_todos_are_a_reminder_that_is_never_stored(bound: Bound) -> None:
    bound.bind()
    shop, store = bound.shop, bound.shop.store
    store.write(lambda db: todos.apply(db, bound.issue.id, [{"op": "init", "items": ["a", "b"]}]))
    run_id = shop.begin("go on")
    last = shop.context().turns[-1]
    assert last.role == "system"
    assert "- [/] a\n- [ ] b" in last.text
    assert all("Reminder" not in message.content for message in shop.history())
    shop.use_tool(run_id, "listed", name="todo")
    after = store.read(lambda db: build(db, store.blobs, shop.config, shop.session_id))
    assert after.turns[-1].role == "tool", "suppressed right after a todo result"
