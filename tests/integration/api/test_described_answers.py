"""Answers and the OpenAPI document name the same fields: nothing is sent that is not described."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis

from holdfast.storage.hosts import hosts
from holdfast.storage.hosts.hosts import Seen
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.workflow_double import WorkflowDouble

NOUNS = {"SessionShown", "MessageShown", "RunShown", "CheckpointShown", "CompactionShown"}
# These describe less than they send, but for the session, the run and the messages in them.
OPEN = {"ChatShown", "OpenChatShown", "TakenShown", "ExportShown"}
ONE_AT_A_TIME = (
    "version: 1\nproject: walk\nprimary: {model: default}\nlimits: {running_sessions: 1}"
)
HOST = Seen(id="walked", name="walked", epoch=1, address="", task_queue="q", version="0")
SESSION = "/sessions/{session_id}"


class Walk:
    """Calls operations and holds each answer against a document that allows no further field."""

    def __init__(self, caller: Caller, document: dict[str, Any]) -> None:
        self.caller = caller
        self.schema = schemathesis.openapi.from_dict(closed(document))
        self.walked: set[str] = set()
        self.workflow = WorkflowDouble(caller.api.store)

    def ask(self, operation: str, names: dict[str, str], body: Any = None, **query: str) -> Any:
        """The answer of one operation, for example `GET /sessions/{session_id}`."""
        method, path = operation.split(" ")
        answer = self.caller.http.request(method, path.format(**names), json=body, params=query)
        assert answer.status_code < 300, (operation, answer.text)
        self.schema[f"/api/v1{path}"][method].validate_response(answer)
        self.walked.add(operation)
        return answer.json()

    def finish(self, names: dict[str, str]) -> None:
        """Let the session's run come to its end."""
        self.caller.api.double.finish(names["session_id"])


def closed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with every described object closed to fields that it does not name."""
    made = copy.deepcopy(document)
    for name, schema in made["components"]["schemas"].items():
        if schema.get("properties") and name not in OPEN:
            schema["additionalProperties"] = False
    return made


@pytest.fixture
def document(api: ApiServer) -> dict[str, Any]:
    answer = httpx2.get(f"{api.url}/api/v1/openapi.json", trust_env=False, timeout=120.0)
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def project_id(caller: Caller, tmp_path: Path) -> str:
    return str(caller.project(tmp_path / "work", ONE_AT_A_TIME)["id"])


def test_every_answer_with_a_session_message_run_or_checkpoint_is_described_in_full(
    caller: Caller, document: dict[str, Any], project_id: str
) -> None:
    walk = Walk(caller, document)
    walk_a_session(walk, project_id)
    for part in (walk_a_run, walk_messages, walk_a_checkpoint, walk_a_compaction):
        part(walk, {"session_id": caller.session(project_id)["id"]})
    walk_a_supervised_session(walk, caller.session(project_id)["id"])
    walk_the_queue(walk, project_id)
    walk_a_chat(walk)
    assert operations_with(document, NOUNS) - walk.walked == set()


def test_the_session_of_a_welcome_has_exactly_the_described_fields(
    caller: Caller, document: dict[str, Any], project_id: str
) -> None:
    session = caller.session(project_id)
    socket, welcome = caller.attach(session["id"], observe=True)
    socket.close()
    described = document["components"]["schemas"]["SessionShown"]
    assert welcome["payload"]["session"] == session
    assert set(session) == set(described["required"])
    assert set(described["properties"]) - set(session) == {"queued", "reason"}


def operations_with(document: dict[str, Any], nouns: set[str]) -> set[str]:
    """The operations whose documented answer holds one of the nouns, at any depth."""
    schemas = document["components"]["schemas"]
    holding: set[str] = set()
    more = nouns
    while more - holding:
        holding |= more
        more = {name for name, schema in schemas.items() if mentions(schema, holding)}
    return {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if mentions(operation["responses"], holding)
    }


def mentions(schema: Any, names: set[str]) -> bool:
    text = json.dumps(schema)
    return any(f'"#/components/schemas/{name}"' in text for name in names)


def walk_a_session(walk: Walk, project_id: str) -> None:
    project = {"project_id": project_id}
    created = walk.ask("POST /projects/{project_id}/sessions", project, {"title": "walked"})
    names = {"session_id": created["id"]}
    walk.ask("GET /sessions", {})
    walk.ask("GET /projects/{project_id}/sessions", project)
    walk.ask("GET /resolve", {}, name="walked")
    walk.ask(f"GET {SESSION}", names)
    walk.ask(f"PUT {SESSION}", names, {"pinned": True})
    issue = walk.caller.http.post(f"/projects/{project_id}/issues", json={"title": "x"}).json()
    walk.ask(f"PUT {SESSION}/bind", names, {"issue_id": issue["id"]})
    walk.ask(f"DELETE {SESSION}/bind", names)
    walk.ask(f"POST {SESSION}/restart", names)
    walk.workflow.store.write(lambda db: hosts.register(db, HOST))
    moved = walk.ask(f"POST {SESSION}/move", names, {"host_id": HOST.id})
    assert moved["host"] == {"id": HOST.id, "name": HOST.name, "state": "up"}
    walk.ask(f"POST {SESSION}/archive", names)
    walk.ask(f"POST {SESSION}/unarchive", names)
    walk.ask(f"POST {SESSION}/reopen", names)
    walk.ask(f"DELETE {SESSION}", names, confirm="true")


def walk_a_run(walk: Walk, names: dict[str, str]) -> None:
    sent = walk.ask(f"POST {SESSION}/messages", names, {"content": "work"})
    names = {**names, "run_id": sent["run"]["id"]}
    walk.workflow.call(names["session_id"], names["run_id"], command="true")
    walk.workflow.subagent(names["session_id"], names["run_id"])
    run = walk.ask(f"GET {SESSION}/runs/{{run_id}}", names)
    assert run["tool_calls"]
    assert run["subagent_invocations"]
    walk.ask(f"GET {SESSION}/runs", names)
    walk.ask(f"POST {SESSION}/runs/{{run_id}}/cancel", names)


def walk_messages(walk: Walk, names: dict[str, str]) -> None:
    session_id = names["session_id"]
    call = {"id": "c1", "name": "shell", "arguments": {"command": "ls"}}
    first = walk.workflow.say(session_id, "list it")
    walk.workflow.say(session_id, "", "primary", tool_calls=[call])
    walk.workflow.say(session_id, "a b c", "tool", tool_call_id="c1", tool_name="shell")
    turns = walk.ask(f"GET {SESSION}/messages", names, format="conversation")["items"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"]
    walk.workflow.supersede(session_id, [first.id], "discard", "walked")
    shown = walk.ask(f"GET {SESSION}/messages", names, include_superseded="true")
    assert shown["items"][0]["superseded_by"]
    walk.ask(f"GET {SESSION}/messages", names, before="latest")
    assert walk.ask(f"GET {SESSION}/export", names)["messages"]


def walk_a_supervised_session(walk: Walk, session_id: str) -> None:
    """Words to a busy session, a failure that is seen, and the run once more."""
    names = {"session_id": session_id}
    said = walk.ask(f"POST {SESSION}/messages", names, {"content": "one"})
    asked = {"content": "two", "when_busy": "queue"}
    kept = walk.ask(f"POST {SESSION}/messages", names, asked)
    names["message_id"] = kept["message"]["id"]
    walk.ask(f"GET {SESSION}/waiting", names)
    walk.ask(f"PATCH {SESSION}/waiting/{{message_id}}", names, {"content": "three"})
    walk.ask(f"DELETE {SESSION}/waiting/{{message_id}}", names)
    walk.caller.api.double.finish(session_id, state="failed")
    walk.ask(f"GET {SESSION}", names)
    walk.ask(f"POST {SESSION}/attention/seen", names)
    walk.ask(f"POST {SESSION}/runs/{{run_id}}/retry", {**names, "run_id": said["run"]["id"]})
    walk.finish(names)


def walk_the_queue(walk: Walk, project_id: str) -> None:
    first, second, third = ({"session_id": walk.caller.session(project_id)["id"]} for _ in range(3))
    walk.ask(f"POST {SESSION}/messages", first, {"content": "run"})
    for names in (second, third):
        assert walk.ask(f"POST {SESSION}/messages", names, {"content": "wait"})["queued"]
    assert walk.ask(f"GET {SESSION}", third)["queued"]
    walk.ask(f"DELETE {SESSION}/queued-message", third)
    walk.finish(first)
    walk.ask(f"POST {SESSION}/resume", second)
    walk.finish(second)


def walk_a_checkpoint(walk: Walk, names: dict[str, str]) -> None:
    walk.caller.send(names["session_id"])
    point = walk.ask(f"POST {SESSION}/checkpoints", names)
    names = {**names, "checkpoint_id": point["id"], "target": "primary"}
    one = f"{SESSION}/checkpoints/{{checkpoint_id}}"
    walk.ask(f"PUT {one}/prompts/{{target}}", names, {"content": "new"})
    assert walk.ask(f"GET {one}", names)["prompt_edits"]
    walk.ask(f"GET {SESSION}/checkpoints", names)
    walk.ask(f"POST {one}/resume", names)
    walk.finish(names)
    walk.ask(f"POST {one}/rollback", names)
    for words in ("again", "and again"):
        message = walk.caller.send(names["session_id"], words).json()["message"]
        walk.finish(names)
    body = {"message_id": message["id"]}
    assert walk.ask(f"POST {SESSION}/rollback", names, body)["messages_superseded"] == 1
    first = walk.ask(f"GET {SESSION}/messages", names)["items"][-1]
    again = {**names, "message_id": first["id"]}
    walk.ask(f"POST {SESSION}/messages/{{message_id}}/resend", again)
    walk.finish(names)


def walk_a_compaction(walk: Walk, names: dict[str, str]) -> None:
    walk.caller.send(names["session_id"])
    walk.finish(names)
    record = walk.ask(f"POST {SESSION}/compact", names)
    assert record["dropped"]
    names = {**names, "compaction_id": record["id"]}
    one = f"{SESSION}/compactions/{{compaction_id}}"
    walk.ask(f"GET {SESSION}/compactions", names)
    walk.ask(f"GET {one}", names)
    walk.ask(f"PATCH {one}", names, {"operator_flag": "good"})
    walk.ask(f"POST {one}/undo", names)


def walk_a_chat(walk: Walk) -> None:
    names = {"user_id": "user", "chat_id": "chat"}
    walk.ask("POST /chats/{user_id}/{chat_id}/messages", names, {"content": "hello"})
    walk.ask("GET /chats/{user_id}/{chat_id}", names)
