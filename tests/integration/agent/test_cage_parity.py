"""File tools and the shell's cage agree about every path: what one cannot see, no other can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from activities.tools.runners import rules_of
from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.files import FILE_TOOLS, run_file_tool
from holdfast.agent.tools.specs import BY_NAME
from holdfast.domain.project_file import AgentSpec
from holdfast.terminal.cages.finding import probe
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import CageUnavailable
from tests.support.servers.terminal_hosts import TestHost, collect


def _cages_work() -> bool:
    try:
        probe()
    except CageUnavailable:
        return False
    return True


pytestmark = pytest.mark.skipif(not _cages_work(), reason="this machine cannot build cages")
FILES = ("hidden/file", "a/hidden/file", "token", "docs/file", "docs/made/file", "a/file", "file")
CAGE: dict[str, Any] = {
    "fs": {
        "hidden": ["hidden", "a/hidden", "token"],
        "read_only": ["docs"],
        "read_write": ["docs/made"],
    }
}
PATHS = (*FILES, "link", "link/file", "a/../token", "docs/../hidden/file", "../beside")


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        (running.folder / "beside").write_text("content")
        for name in FILES:
            (running.work / name).parent.mkdir(parents=True, exist_ok=True)
            (running.work / name).write_text("content")
        (running.work / "link").symlink_to("a/hidden")
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


def tool(host: TestHost, name: str, **arguments: Any) -> bool:
    """Whether the tool did it."""
    function = {spec.name: function for spec, function in FILE_TOOLS}[name]
    parsed = BY_NAME[name].parse(ToolCall("", name, arguments))
    rules = rules_of(AgentSpec.model_validate({"cage": CAGE}), ())
    outcome = run_file_tool(function, parsed, host.work, rules)
    return not outcome.is_error and (name != "read_file" or "content" in outcome.text)


@pytest.mark.parametrize("path", PATHS)
async def test_the_tools_and_the_cage_agree_about_a_path(
    host: TestHost, client: TerminalClient, path: str
) -> None:
    command = f"grep -q content {path} && echo seen; echo by the shell >> {path}; true"
    request = host.request(f"parity-{PATHS.index(path)}", command, cage=CAGE)
    info = await client.spawn(request)
    output = (await collect(client, info.key)).decode()
    await client.wait(info.key)
    assert ("seen" in output) == tool(host, "read_file", path=path)
    place = host.work / path
    shell_wrote = place.is_file() and "by the shell" in place.read_text()
    assert shell_wrote == tool(host, "write_file", path=path, content="content")
