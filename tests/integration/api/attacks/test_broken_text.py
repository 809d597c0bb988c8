"""Text that is no Unicode, and JSON without an end of depth: 400 or an error frame, never a 500."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until, say

ALONE = '"\\ud800"'
IN_ADDRESS = "%ED%A0%80"
DEEP = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 900 + b"1" + b"}" * 900,
]


@pytest.fixture
def known(caller: Caller, tmp_path: Path) -> dict[str, str]:
    project = caller.project(tmp_path / "work")["id"]
    return {"project_id": project, "session_id": caller.session(project)["id"]}


@pytest.fixture(scope="module")
def operations(api: ApiServer) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Method, path, operation and schemas of everything that the document tells of."""
    address = f"{api.url}/api/v1/openapi.json"
    document = httpx2.get(address, trust_env=False, timeout=120.0).json()
    found = [
        (method.upper(), path, operation, document["components"]["schemas"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(found) > 40
    return found


def fields(operation: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The names of what the body of an operation may hold."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    for one in [schema, *schema.get("anyOf", [])]:
        if "$ref" in one:
            return list(schemas[one["$ref"].rpartition("/")[2]].get("properties", {}))
    return list(schema.get("properties", {}))


def filled(path: str, known: dict[str, str], rest: str) -> str:
    for name, value in known.items():
        path = path.replace(f"{{{name}}}", value)
    while "{" in path:
        path = path[: path.index("{")] + rest + path[path.index("}") + 1 :]
    return path


def check(answer: httpx2.Response, what: object) -> None:
    assert answer.status_code < 500 or answer.status_code == 503, (what, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["error"]["code"], what


@pytest.mark.timeout(300)
def test_half_a_letter_in_any_field_of_a_body_is_no_crash(
    caller: Caller, known: dict[str, str], operations: list[Any]
) -> None:
    tried = 0
    for method, path, operation, schemas in operations:
        for name in fields(operation, schemas):
            for value in (ALONE, f"[{ALONE}]", f'{{"a": {ALONE}}}', f"{{{ALONE}: 1}}"):
                address = caller.api.url + filled(path, known, "absent")
                body = f"{{{json.dumps(name)}: {value}}}"
                answer = caller.http.request(method, address, content=body)
                check(answer, (method, path, body))
                tried += 1
    assert tried > 100


@pytest.mark.timeout(300)
def test_half_a_letter_in_an_address_or_a_header_is_no_crash(
    caller: Caller, known: dict[str, str], operations: list[Any]
) -> None:
    for method, path, operation, _ in operations:
        address = caller.api.url + filled(path, {}, f"a{IN_ADDRESS}")
        check(caller.http.request(method, address), (method, address))
        names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
        query = "&".join(f"{name}=a{IN_ADDRESS}" for name in [*names, IN_ADDRESS])
        address = caller.api.url + filled(path, known, "absent")
        check(caller.http.request(method, f"{address}?{query}"), (method, address, query))
    for header in (
        "X-Request-Id",
        "Idempotency-Key",
        "Origin",
        "Cookie",
        "X-Forwarded-For",
        "If-None-Match",
    ):
        headers = [(header.encode(), b"holdfast_session=\xed\xa0\x80")]
        check(caller.http.post("/projects/load", headers=headers, json={}), header)
    bad = httpx2.get(
        f"{caller.api.url}/api/v1/sessions",
        headers=[(b"Authorization", b"Bearer \xed\xa0\x80")],
        trust_env=False,
    )
    assert bad.status_code == 401


@pytest.mark.timeout(300)
@pytest.mark.parametrize("body", DEEP, ids=["lists", "objects", "whole lists", "whole objects"])
def test_a_body_without_an_end_of_depth_is_no_crash(
    caller: Caller, known: dict[str, str], operations: list[Any], body: bytes
) -> None:
    for method, path, operation, schemas in operations:
        address = caller.api.url + filled(path, known, "absent")
        if "requestBody" in operation:
            check(caller.http.request(method, address, content=body), (method, path))
        if not body.endswith((b"]", b"}")):
            continue
        for name in fields(operation, schemas):
            inside = b"{" + json.dumps(name).encode() + b": " + body + b"}"
            check(caller.http.request(method, address, content=inside), (method, path, name))
    for path in ("/sessions/import",):
        check(caller.http.post(path, content=body), path)


@pytest.mark.parametrize(
    "frame",
    [
        f'{{"channel": "control", "type": "ping", "payload": {{"n": {ALONE}}}}}',
        f'{{"channel": "control", "type": {ALONE}, "payload": {{}}}}',
        f'{{"channel": {ALONE}, "type": "ping", "payload": {{}}}}',
        f'{{"type": "stdin", "pty_id": {ALONE}, "data": ""}}',
        f'{{"type": "stdin", "pty_id": "a", "data": {ALONE}}}',
        f'{{"type": "resize", "pty_id": {ALONE}, "cols": 9, "rows": 9}}',
        f'{{"type": "ack", "pty_id": {ALONE}, "bytes": 1}}',
        f'{{"channel": "control", "type": "ping", "payload": {{{ALONE}: 1}}}}',
        '{"channel": "control", "type": "ping", "payload": {"n": ' + "[" * 900 + "]" * 900 + "}}",
        "[" * 100_000,
    ],
)
def test_half_a_letter_in_a_frame_is_answered_and_the_socket_lives(
    caller: Caller, known: dict[str, str], frame: str
) -> None:
    socket, _ = caller.attach(known["session_id"])
    with socket:
        socket.send(frame)
        heard = hear(socket)
        assert (heard["channel"], heard["type"]) in {("control", "error"), ("control", "pong")}
        say(socket, "control", "ping", n=1)
        assert hear_until(socket, "pong")[-1]["payload"] == {"n": 1}


def test_half_a_letter_in_the_first_frame_is_answered(
    caller: Caller, known: dict[str, str]
) -> None:
    with caller.socket(f"/sessions/{known['session_id']}/socket?observe=1") as socket:
        hello = f'{{"channel": "control", "type": "hello", "payload": {{"device_hint": {ALONE}}}}}'
        socket.send(hello)
        assert hear(socket)["payload"]["code"] == "bad_frame"
