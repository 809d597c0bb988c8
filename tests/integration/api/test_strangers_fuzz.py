"""One operator with another's ids, over every operation: nothing shows, nothing changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.domain.ids import new_id
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.sessions import ptys
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.workflow_double import WorkflowDouble

SECRET = "wordsecret"
LONG = os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "")
# Per operation, and there are about a hundred of them: a tenth of what others try.
EXAMPLES = max(1, int(LONG or "1") // 10)
# What a path names inside of a session or a project.
PARTS = ("run_id", "checkpoint_id", "head_id", "pty_id", "compaction_id", "issue_id", "other_id")


@pytest.fixture
def owned(caller: Caller, tmp_path: Path) -> dict[str, str]:
    """Ids of things that belong to somebody, all with the secret in them."""
    project = caller.project(tmp_path / SECRET)
    session = caller.session(project["id"], title=SECRET)["id"]
    issue = caller.http.post(f"/projects/{project['id']}/issues", json={"title": SECRET}).json()
    caller.http.put(f"/aliases/{SECRET}", json={"session_id": session})
    workflow = WorkflowDouble(caller.api.store)
    first = workflow.say(session, SECRET)
    run = workflow.begin(session, SECRET)
    checkpoint = workflow.pause(session, SECRET, prompts={"primary": SECRET})
    workflow.resume(session, checkpoint.id)
    head = workflow.finish(run, SECRET)
    pty = Pty(id=new_id(), session_id=session, command=SECRET, cols=80, rows=24, cage="disabled")
    caller.api.store.write(lambda db: ptys.opened(db, pty))
    return {
        "project_id": project["id"],
        "agent": project["id"],
        "session_id": session,
        "other_id": session,
        "run_id": run,
        "checkpoint_id": checkpoint.id,
        "head_id": head,
        "pty_id": pty.id,
        "compaction_id": workflow.compact(session, [first.id]).id,
        "issue_id": issue["id"],
        "name": SECRET,
    }


@pytest.fixture
def stranger(api: ApiServer) -> Iterator[Caller]:
    found = api.operator()
    yield found
    found.close()


@pytest.fixture
def own(stranger: Caller, tmp_path: Path) -> dict[str, str]:
    """The stranger's own project and session."""
    project_id = stranger.project(tmp_path / "own")["id"]
    return {"project_id": project_id, "session_id": stranger.session(project_id)["id"]}


def views(caller: Caller, owned: dict[str, str]) -> list[Any]:
    """Everything the owner sees of it; an answer that is none would make the test worthless."""
    session, project = f"/sessions/{owned['session_id']}", f"/projects/{owned['project_id']}"
    kinds = ("messages", "runs", "events", "checkpoints", "compactions", "heads", "ptys")
    inside = [f"{session}/{kind}" for kind in kinds]
    answers = [caller.http.get(path) for path in (session, *inside, f"{project}/issues")]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert all(owned[name] in str([answer.text for answer in answers]) for name in PARTS)
    return [answer.json() for answer in answers]


@pytest.fixture(scope="module")
def operations(api: ApiServer) -> list[Any]:
    """Every operation that the OpenAPI document tells of."""
    document = httpx2.get(f"{api.url}/api/v1/openapi.json", trust_env=False, timeout=120.0).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=api.url)
    results: list[Any] = list(schema.get_all_operations())
    found = [result.ok() for result in results]
    assert len(found) > 40
    return found


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.req("K-002")
def test_no_operation_shows_or_changes_what_belongs_to_another(
    caller: Caller, stranger: Caller, owned: dict[str, str], operations: list[Any]
) -> None:
    before = views(caller, owned)
    for operation in operations:
        call_as(stranger, operation, owned, foreign=set(owned) - {"name"})
    assert views(caller, owned) == before


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.req("K-002")
def test_no_operation_on_ones_own_session_reaches_a_part_of_anothers(
    caller: Caller,
    stranger: Caller,
    owned: dict[str, str],
    own: dict[str, str],
    operations: list[Any],
) -> None:
    before = views(caller, owned)
    chosen = [one for one in operations if any(f"{{{part}}}" in one.path for part in PARTS)]
    assert len(chosen) > 12
    for operation in chosen:
        call_as(stranger, operation, {**owned, **own}, foreign=set(PARTS))
    assert views(caller, owned) == before


def call_as(stranger: Caller, operation: Any, ids: dict[str, str], *, foreign: set[str]) -> None:
    """Call one operation with these ids in the path, the query and the body."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=not LONG,
        print_blob=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        used = set(case.path_parameters) & set(ids)
        for name in used:
            case.path_parameters[name] = ids[name]
        for given_values in (case.query, case.body):
            if isinstance(given_values, dict):
                given_values.update({name: ids[name] for name in set(given_values) & set(ids)})
        if isinstance(case.body, dict) and "resume_from" in case.body:
            case.body["resume_from"] = ids["other_id"]
        answer = case.call(headers={"Authorization": f"Bearer {stranger.token}"})
        assert answer.status_code < 500 or answer.status_code == 503, (case, answer.text)
        if SECRET not in str(case.body) + str(case.query) and used != {"name"}:
            assert SECRET not in answer.text, (case, answer.text[:500])
        if used & foreign:
            assert 400 <= answer.status_code < 500, (case, answer.status_code, answer.text)

    call()


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/projects/{own_project}/sessions", {"resume_from": "{session_id}"}),
    (
        *("POST", "/projects/{own_project}/sessions"),
        {"resume_from": "{own_session}", "checkpoint_id": "{checkpoint_id}"},
    ),
    (
        *("POST", "/projects/{own_project}/sessions"),
        {"resume_from": "{own_session}", "head_id": "{head_id}"},
    ),
    ("POST", "/projects/{own_project}/sessions", {"bound_issue": "{issue_id}"}),
    ("PUT", "/sessions/{own_session}/bind", {"issue_id": "{issue_id}"}),
    ("PUT", "/aliases/mine", {"session_id": "{session_id}"}),
    ("PUT", "/aliases/mine", {"session_id": SECRET}),
    ("GET", "/sessions/{own_session}/compare/{session_id}", {}),
    ("GET", f"/resolve?name={SECRET}", {}),
    ("GET", "/sessions/{session_id}/export", {}),
]


@pytest.mark.req("K-002")
@pytest.mark.parametrize(("method", "path", "body"), BODIES)
def test_anothers_id_inside_of_ones_own_request_leads_nowhere(
    stranger: Caller,
    owned: dict[str, str],
    own: dict[str, str],
    method: str,
    path: str,
    body: dict[str, Any],
) -> None:
    ids = {**owned, "own_project": own["project_id"], "own_session": own["session_id"]}
    filled = {key: value.format(**ids) for key, value in body.items()}
    answer = stranger.http.request(method, path.format(**ids), json=filled or None)
    assert answer.status_code in (404, 409), answer.text
    assert owned["session_id"] not in answer.text
    listed = stranger.http.get("/sessions").json()["items"]
    assert [one["id"] for one in listed] == [own["session_id"]]


@pytest.mark.req("K-002", "H-033")
def test_what_lists_and_finds_shows_nothing_of_another(
    stranger: Caller, owned: dict[str, str], own: dict[str, str]
) -> None:
    session = owned["session_id"]
    for path in (
        *("/sessions", "/projects", "/aliases", "/export", "/usage", "/audit", "/chats"),
        *(f"/search?q={SECRET}", f"/search?q={SECRET}&session={session}"),
        *(f"/audit?session_id={session}", f"/sessions?q={SECRET}"),
    ):
        answer = stranger.http.get(path)
        assert answer.status_code in (200, 404), (path, answer.text)
        shown = answer.text.replace(f'"query":"{SECRET}"', "")
        assert SECRET not in shown, path
        assert session not in shown, path
