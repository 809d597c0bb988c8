"""The OpenAPI document is true: schemathesis finds nothing that it does not say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.servers.api_server import ApiServer, Caller

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# No Temporal and no terminal host run here, and that is what these say.
UNAVAILABLE = 503
LONG = os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "")
# Per operation, and there are about a hundred of them: a fifth of what others try.
EXAMPLES = max(1, int(LONG or "1") // 5)


@pytest.fixture(scope="module")
def document(api: ApiServer) -> dict[str, Any]:
    answer = httpx2.get(f"{api.url}/api/v1/openapi.json", trust_env=False, timeout=120.0)
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.timeout(3600 if LONG else 300)
def test_a_fuzz_of_every_operation_finds_nothing_that_the_document_does_not_say(
    caller: Caller, document: dict[str, Any], tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work")
    session = caller.session(project["id"])
    caller.send(session["id"])
    known = {"project_id": project["id"], "session_id": session["id"]}
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=caller.api.url)
    operations: list[Any] = list(schema.get_all_operations())
    for result in operations:
        check(caller, result.ok(), known)


def check(caller: Caller, operation: Any, known: dict[str, str]) -> None:
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
        for name in set(case.path_parameters) & set(known):
            case.path_parameters[name] = known[name]
        response = case.call(headers={"Authorization": f"Bearer {caller.token}"})
        if response.status_code != UNAVAILABLE:
            case.validate_response(response, checks=CHECKS)

    call()


def test_every_operation_documents_its_errors_and_never_fastapis_own(
    document: dict[str, Any],
) -> None:
    assert "HTTPValidationError" not in str(document)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/api/v1/") and path != "/api/v1/versions":
                assert {"400", "401", "413", "503"} <= set(operation["responses"]), path


def test_what_needs_a_token_says_so(document: dict[str, Any]) -> None:
    free = {"/healthz", "/readyz", "/launch", "/metrics", "/api/v1/versions", "/api/v1/dsl/schema"}
    # A machine that joins has no token yet: its invitation is its login.
    free |= {"/api/v1/fleet/join"}
    secured = {
        path
        for path, operations in document["paths"].items()
        if all(operation.get("security") for operation in operations.values())
    }
    assert set(document["paths"]) - secured == free
