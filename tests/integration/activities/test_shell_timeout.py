"""A shell command without a time of its own ends at the default of its spec."""

from __future__ import annotations

from dataclasses import replace

import pytest

from activities.tools import shell
from holdfast.agent.tools.specs import SHELL
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of

UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"


async def ended(worker: LocalWorker, **arguments: object) -> object:
    """Why the process of one shell call ended; None if by itself."""
    session = worker.session(worker.project(UNCAGED))
    steps = script({"call": SHELL.name, "arguments": arguments}, {"say": "Seen."})
    run = await worker.run(session, steps)
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert isinstance(call.output, dict)
    return call.output.get("reason")


async def test_the_default_timeout_of_the_spec_ends_a_command(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "SHELL", replace(SHELL, default_timeout_s=0.3))
    assert await ended(worker, command="sleep 1000") == "timeout"
    assert await ended(worker, command="sleep 1000", timeout_s=None) == "timeout"
    assert await ended(worker, command="sleep 1", timeout_s=60) is None
