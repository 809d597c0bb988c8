"""One operator with another's ids, over every operation: nothing shows, nothing changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.api_server import ApiServer, Caller

SECRET = "wordsecret"
LONG = os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "")
# Per operation, and there are about a hundred of them: a tenth of what others try.
EXAMPLES = max(1, int(LONG or "1") // 10)


@pytest.fixture
def owned(caller: Caller, tmp_path: Path) -> dict[str, str]:
    """Ids of things that belong to somebody, all with the secret in them."""
    project = caller.project(tmp_path / SECRET)
    session = caller.session(project["id"], title=SECRET)
    accepted = caller.send(session["id"], SECRET).json()
    caller.api.double.finish(session["id"])
    issue = caller.http.post(f"/projects/{project['id']}/issues", json={"title": SECRET}).json()
    caller.http.put(f"/aliases/{SECRET}", json={"session_id": session["id"]})
    return {
        "project_id": project["id"],
        "session_id": session["id"],
        "run_id": accepted["run"]["id"],
        "issue_id": issue["id"],
        "name": SECRET,
    }


def views(caller: Caller, owned: dict[str, str]) -> list[Any]:
    """Everything the owner sees of it."""
    session, project = owned["session_id"], owned["project_id"]
    paths = [
        f"/sessions/{session}",
        f"/sessions/{session}/messages",
        f"/sessions/{session}/runs",
        f"/sessions/{session}/events",
        f"/projects/{project}/issues",
    ]
    return [caller.http.get(path).json() for path in paths]


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.req("K-002")
def test_no_operation_shows_or_changes_what_belongs_to_another(
    api: ApiServer, caller: Caller, owned: dict[str, str]
) -> None:
    document = httpx2.get(f"{api.url}/api/v1/openapi.json", trust_env=False, timeout=120.0).json()
    before = views(caller, owned)
    stranger = api.operator()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=api.url)
    operations: list[Any] = list(schema.get_all_operations())
    assert len(operations) > 40
    for result in operations:
        call_as(stranger, result.ok(), owned)
    stranger.close()
    assert views(caller, owned) == before


def call_as(stranger: Caller, operation: Any, owned: dict[str, str]) -> None:
    """Call one operation with the other's ids in the path, the query and the body."""

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
        used = set(case.path_parameters) & set(owned)
        for name in used:
            case.path_parameters[name] = owned[name]
        if isinstance(case.query, dict) and "session_id" in case.query:
            case.query["session_id"] = owned["session_id"]
        if isinstance(case.body, dict) and "resume_from" in case.body:
            case.body["resume_from"] = owned["session_id"]
        answer = case.call(headers={"Authorization": f"Bearer {stranger.token}"})
        assert answer.status_code < 500 or answer.status_code == 503, (case, answer.text)
        if SECRET not in str(case.body) + str(case.query) and used != {"name"}:
            assert SECRET not in answer.text, (case, answer.text[:500])
        if used & {"session_id", "project_id", "run_id", "issue_id"}:
            assert 400 <= answer.status_code < 500, (case, answer.status_code, answer.text)

    call()
