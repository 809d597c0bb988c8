"""Steps and child workflows, matched to what the worker registers: names and types, both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import get_type_hints

import pytest
from temporalio import activity, workflow

from holdfast.domain.wire import SUBAGENT_WORKFLOW
from holdfast.settings.config import Config
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from worker.parts import WORKFLOWS, build
from workflows import steps
from workflows.subagent_call import Children

STEPS = [step for step in vars(steps).values() if isinstance(step, steps.Step)]


@pytest.fixture
async def registered(sqlite_store: OpenStore) -> AsyncIterator[list[activity._Definition]]:
    """The activities of a worker, as Temporal's SDK reads their names and annotations."""
    parts = build(sqlite_store, Settings(home=sqlite_store.home), Config)
    yield [activity._Definition.must_from_callable(one) for one in parts.activities]
    await parts.terminals.close()
    for pool in parts.pools:
        pool.close()


async def test_every_step_has_one_activity_and_every_activity_one_step(
    registered: list[activity._Definition],
) -> None:
    assert sorted(str(one.name) for one in registered) == sorted(step.name for step in STEPS)


async def test_an_activity_takes_and_gives_the_types_of_its_step(
    registered: list[activity._Definition],
) -> None:
    types = {one.name: (one.arg_types, one.ret_type) for one in registered}
    assert types == {step.name: ([step.takes], step.gives) for step in STEPS}


def test_the_workflow_of_a_subagent_takes_and_gives_the_types_of_its_call() -> None:
    definitions = [workflow._Definition.must_from_class(one) for one in WORKFLOWS]
    (found,) = [one for one in definitions if one.name == SUBAGENT_WORKFLOW]
    call = get_type_hints(Children._run)
    assert (found.arg_types, found.ret_type) == ([call["start"]], call["return"])
