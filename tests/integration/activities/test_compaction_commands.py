"""A compactor is a program of the project file: it runs in the agent's cage, as its shell does."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activities.compaction.plugin_command import PluginFailed, run_plugin
from activities.tools.shell import surroundings
from holdfast.domain.project_file import AgentSpec
from holdfast.settings.config import Operators
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects.owners import owner_of
from tests.support.servers.terminal_hosts import TestHost
from tests.support.step_runner import StepRunner

TELL = 'printf \'{"said": "%s"}\' "$({})"'


@pytest.fixture
def host() -> Iterator[TestHost]:
    """A host with a variable that a cage may let in."""
    with TestHost(HOLDFAST_HOME="/nowhere") as running:
        yield running


@pytest.fixture
async def shop(
    sqlite_store: OpenStore, tmp_path: Path, host: TestHost
) -> AsyncIterator[StepRunner]:
    runner = StepRunner(sqlite_store, tmp_path / "p", host=host)
    yield runner
    await runner.terminals.close()


async def said(shop: StepRunner, command: str, question: object = None, **keys: object) -> str:
    """What a shell command prints as a compactor of an agent like that."""
    session, agent = shop.state(), AgentSpec.model_validate(keys)
    owner = shop.store.read(lambda db: owner_of(db, session))
    answer = await run_plugin(
        shop.terminals,
        TELL.replace("{}", command),
        {"question": question},
        where=surroundings(session, agent, owner, shop.config),
        timeout_s=60.0,
    )
    return str(answer["said"])


async def test_a_compactor_sees_the_agents_cage_and_nothing_else(
    shop: StepRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("hush")
    monkeypatch.setenv("ANY_API_KEY", "hush")
    attack = f"hostname; cat {tmp_path}/secret; echo $ANY_API_KEY; cat /proc/*/environ"
    inside = await said(shop, f"({attack}) 2>&1 | tr -c a-z ' '")
    assert inside.startswith("cage ")
    assert "hush" not in inside
    outside = await said(shop, f"cat {tmp_path}/secret", cage="disabled")
    assert outside == "hush"


async def test_a_variable_that_the_cage_lets_in_comes_from_the_worker(
    shop: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUSTED_NAME", "value")
    assert await said(shop, "echo $TRUSTED_NAME", cage={"env": ["TRUSTED_NAME"]}) == "value"
    assert await said(shop, "echo $TRUSTED_NAME") == ""


async def test_a_question_larger_than_any_frame_reaches_the_command(shop: StepRunner) -> None:
    assert int(await said(shop, "wc -c", "x" * 3_000_000)) > 3_000_000


async def test_a_question_is_not_left_behind(shop: StepRunner) -> None:
    await said(shop, "true")
    with pytest.raises(PluginFailed, match="code 3"):
        await said(shop, 'true)"; exit 3; echo "$(true')
    assert list((shop.terminals.state_dir / "questions").iterdir()) == []


async def test_a_command_that_prints_on_stderr_still_answers(shop: StepRunner) -> None:
    answer = await said(shop, "echo noise >&2; echo word")
    assert json.dumps(answer) == '"word"'


async def test_a_cage_that_cannot_be_had_is_the_commands_failure(shop: StepRunner) -> None:
    with pytest.raises(PluginFailed, match="does not exist"):
        await said(shop, "true", cage={"fs": {"read_only": ["/no/such"]}})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_compactor_runs_as_its_operators_user_of_the_machine(shop: StepRunner) -> None:
    shop.config = shop.config.model_copy(
        update={"operators": Operators(unix_user={"alice": "nobody"})}
    )
    # The folder of the test is root's alone, so that user is refused there, as for a shell call.
    with pytest.raises(PluginFailed, match="cannot be written by nobody, who runs the programs"):
        await said(shop, "id -u", cage="disabled")


async def test_a_compactor_does_not_follow_a_folder_that_became_a_link(
    shop: StepRunner, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    shop.folder.rename(tmp_path / "away")
    shop.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PluginFailed, match="behind a link"):
        await said(shop, "pwd")
