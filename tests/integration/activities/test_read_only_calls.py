"""Tool calls that only look: no note when they begin, and yet a lost attempt is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.tools.runners import file_tool
from activities.tools.tool_calls import ToolActivities
from holdfast.agent.tools.files import list_files
from holdfast.agent.tools.specs import LIST_FILES
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.domain.steps import ToolResult, ToolStep
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events
from holdfast.storage.projects import projects
from holdfast.storage.sessions import tool_calls
from tests.support.workflow_double import WorkflowDouble


class Looking:
    """A run with one `list_files` call that waits."""

    def __init__(self, store: OpenStore, folder: Path, on_crash: Any) -> None:
        file = ProjectFile(
            project="looking", primary=AgentSpec(system_prompt="Look."), on_crash=on_crash
        )
        store.write(lambda db: projects.keep_file(db, on_crash, file.model_dump(mode="json")))
        self.workflow = WorkflowDouble(store)
        self.session_id = self.workflow.session(dsl_hash=on_crash, working_directory=str(folder))
        self.run_id = self.workflow.begin(self.session_id)
        self.call_id = self.workflow.call(self.session_id, self.run_id, "list_files")
        self.steps = ToolActivities(store, [file_tool(LIST_FILES, list_files)])

    async def make(self, attempt: int) -> ToolResult:
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        step = ToolStep(
            session_id=self.session_id,
            run_id=self.run_id,
            tool_call_id=self.call_id,
            tool_name="list_files",
        )
        return await environment.run(self.steps.call_tool, step)

    def state(self) -> str:
        found = self.workflow.store.read(lambda db: tool_calls.find(db, self.call_id))
        assert found is not None
        return found.state

    def crashes(self) -> int:
        seen = self.workflow.store.read(lambda db: events.after(db, self.session_id, 0, limit=1000))
        return sum(event.kind == "session.crash_recovered" for event in seen)


async def test_a_call_that_only_looks_is_made_and_closed_once(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    looking = Looking(sqlite_store, tmp_path, "resume")
    assert await looking.make(attempt=1) == ToolResult(fingerprint=ANY)
    assert await looking.make(attempt=1) == ToolResult(fingerprint=ANY)
    assert (looking.state(), looking.crashes()) == ("done", 0)


async def test_a_read_only_call_is_retried_after_a_crash_and_recorded(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    looking = Looking(sqlite_store, tmp_path, "resume")
    assert await looking.make(attempt=2) == ToolResult(fingerprint=ANY)
    assert (looking.state(), looking.crashes()) == ("done", 1)
    assert await looking.make(attempt=3) == ToolResult(fingerprint=ANY), (
        "its answer was stored before"
    )
    assert looking.crashes() == 1


async def test_a_lost_look_fails_the_run_where_the_project_says_so(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    looking = Looking(sqlite_store, tmp_path, "fail")
    with pytest.raises(ApplicationError, match="interrupted by a daemon restart"):
        await looking.make(attempt=2)
    assert (looking.state(), looking.crashes()) == ("running", 1)
