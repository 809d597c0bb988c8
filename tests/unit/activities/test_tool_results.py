"""What a workflow hears of a tool call: limits of its cage, and a cage that was never there."""

from __future__ import annotations

from typing import Any

import pytest

from activities.tools.tool_calls import result_of


@pytest.mark.req("K-136")
@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"error": "no such path", "code": "cage_spawn_failed"}, "no such path"),
        ({"error": "no memory_gb", "code": "bad_cage"}, "no memory_gb"),
        ({"error": "bwrap is missing", "code": "cage_unavailable"}, None),
        ({"exit_code": None, "reason": "cage_spawn_failed", "message": "bwrap: no"}, "bwrap: no"),
        ({"error": "too many processes", "code": "limit"}, None),
        ({"exit_code": 1, "output": "cage_spawn_failed"}, None),
        ("cage_spawn_failed", None),
    ],
)
def test_a_cage_that_was_not_set_up_is_told_with_its_details(output: Any, told: str | None) -> None:
    result = result_of(output, failed=True)
    assert (result.failed, result.cage_failure) == (True, told)


@pytest.mark.parametrize("limit", ["walltime", "memory"])
def test_a_limit_that_was_exceeded_is_no_failure_of_the_cage(limit: str) -> None:
    result = result_of({"reason": f"{limit}_exceeded", "message": "killed"}, failed=True)
    assert (result.exceeded, result.cage_failure) == (limit, None)
