"""The terminal of a shell call: when it gets one, and how many lines that one keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities.terminals import Terminals
from activities.tools.requests import ToolRequest
from activities.tools.shell import Shell
from holdfast.agent.tools.specs import SHELL, ShellArguments
from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.projects import projects
from holdfast.storage.sessions import ptys, sessions, tool_calls
from holdfast.terminal.client import Snapshot
from tests.support.servers.terminal_hosts import TestHost, eventually
from tests.support.step_runner import StepRunner

HELPER = "primary.subagents.helper"
PROJECT = """
version: 1
project: shells
primary:
  model: scripted:echo
  subagents:
    helper: {terminal: true}
"""
CONFIG = Config.model_validate({"terminals": {"scrollback_lines": 100}})


class ShellCalls:
    """Shell calls of a run, as the worker makes them."""

    def __init__(self, store: OpenStore, folder: Path, terminals: Terminals) -> None:
        self.steps = StepRunner(store, folder, PROJECT)
        self.store = store
        self.run_id = self.steps.begin()
        self.shell = Shell(store, terminals, lambda: CONFIG)

    def call(self, caller: str, **arguments: Any) -> ToolRequest:
        """A stored call."""
        row = ToolCallRow(
            id=new_id(),
            run_id=self.run_id,
            session_id=self.steps.session_id,
            caller=caller,
            tool_name=SHELL.name,
            input=arguments,
        )

        def store(db: Db) -> ToolRequest:
            tool_calls.add(db, [row])
            session = sessions.get(db, row.session_id)
            file = projects.file_by_hash(db, session.dsl_hash)
            return ToolRequest(row, session, file, file.agent(caller), None, False)

        return self.store.write(store)

    async def run(self, request: ToolRequest) -> Any:
        """What the call gives its model."""
        arguments = ShellArguments.model_validate(request.call.input)
        return (await self.shell.run(request, arguments)).output

    def terminals(self) -> list[Pty]:
        return self.store.read(lambda db: ptys.of_session(db, self.steps.session_id))


@pytest.fixture
async def calls(
    sqlite_store: OpenStore, spare_host: TestHost, tmp_path: Path
) -> AsyncIterator[ShellCalls]:
    terminals = Terminals(sqlite_store, spare_host.socket, spare_host.state)
    yield ShellCalls(sqlite_store, tmp_path / "p", terminals)
    await terminals.close()


@pytest.mark.req("K-043")
@pytest.mark.parametrize(
    ("caller", "asked", "gets_one"),
    [
        ("primary", {}, False),
        ("primary", {"terminal": True}, True),
        (HELPER, {}, True),
        (HELPER, {"terminal": False}, False),
    ],
)
async def test_a_terminal_is_what_the_project_file_or_the_call_asks_for(
    calls: ShellCalls, caller: str, asked: dict[str, bool], gets_one: bool
) -> None:
    request = calls.call(caller, command="test -t 1 && echo yes || echo no", **asked)
    result = await calls.run(request)
    assert result["output"].strip() == ("yes" if gets_one else "no")
    listed = [(pty.id, pty.subagent, pty.created_by) for pty in calls.terminals()]
    name = None if caller == "primary" else "helper"
    assert listed == ([(request.call.id, name, "model")] if gets_one else [])


@pytest.mark.req("K-049")
async def test_the_terminal_of_a_call_keeps_as_many_lines_as_configured(calls: ShellCalls) -> None:
    request = calls.call("primary", command="seq -f 'line %g.' 400; read x", terminal=True)
    running = asyncio.create_task(calls.run(request))
    client = await calls.shell.terminals.client()

    async def has_shown_all() -> bool:
        return bool(calls.terminals()) and "line 400." in await client.snapshot_text(
            request.call.id
        )

    await eventually(has_shown_all, "the output")
    async with await client.attach(request.call.id) as attachment:
        screen = await anext(attachment)
    await client.write(request.call.id, b"\r")
    await running
    assert isinstance(screen, Snapshot)
    assert (b"line 278." in screen.data, b"line 277." in screen.data) == (True, False)
