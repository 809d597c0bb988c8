"""Patterns of a model: none takes more than ten seconds or any memory of our own process."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools import search_client
from holdfast.agent.tools.files import FILE_TOOLS, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.search_client import SearchClient
from holdfast.agent.tools.specs import BY_NAME

EVIL = {
    "exponential": r"^(a+)+$",
    "alternatives": r"^(a|a)*$",
    "repetition": r"a{1000000000}",
    "nested": r"((((a{100}){100}){100}){100})",
    "classes": r"\w{2000}{500}",
}
GREW_KIB_MAX = 64 * 1024


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "evil.txt").write_text("a" * 5000 + "!\n")
    (tmp_path / "plain.txt").write_text("a plain line\n")
    return tmp_path


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchClient]:
    own = SearchClient()
    monkeypatch.setattr("holdfast.agent.tools.files.SEARCHES", own)
    yield own
    own.close()


def call(work: Path, tool: str, **given: Any) -> ToolOutcome:
    function = {spec.name: function for spec, function in FILE_TOOLS}[tool]
    return run_file_tool(function, BY_NAME[tool].parse(ToolCall("", tool, given)), work)


@pytest.mark.parametrize("pattern", EVIL.values(), ids=EVIL)
def test_a_hostile_pattern_ends_in_time_with_words_and_others_go_on(
    work: Path, client: SearchClient, pattern: str
) -> None:
    assert call(work, "grep", pattern="plain").output["count"] == 1  # type: ignore[index]
    grown, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    outcomes: list[ToolOutcome] = []
    hostile = threading.Thread(
        target=lambda: outcomes.append(call(work, "grep", pattern=pattern)), daemon=True
    )
    hostile.start()
    assert call(work, "grep", pattern="plain").output["count"] == 1  # type: ignore[index]
    hostile.join(60)
    # The limit is ten seconds; the rest is for a machine that is busy with other tests.
    assert time.monotonic() - began < 15
    (outcome,) = outcomes
    said = outcome.text
    assert "simpler pattern" in said or "not a valid" in said or '"count": 0' in said, said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < GREW_KIB_MAX


def test_a_glob_is_matched_in_a_child_too(work: Path, client: SearchClient) -> None:
    assert client._process is None
    found = call(work, "list_files", glob="*.txt").output
    assert isinstance(found, dict)
    assert found["files"] == ["evil.txt", "plain.txt"]
    assert client._process is not None
    assert "more than 20 stars" in call(work, "list_files", glob="*a" * 21).text


def test_a_search_works_again_after_its_process_was_killed(
    work: Path, client: SearchClient
) -> None:
    call(work, "grep", pattern="plain")
    assert client._process is not None
    client._process.kill()
    client._process.wait()
    assert call(work, "grep", pattern="plain").output["count"] == 1  # type: ignore[index]


def test_the_search_process_gets_no_key_of_the_worker(
    work: Path, client: SearchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "sk-secret")
    call(work, "grep", pattern="plain")
    assert client._process is not None
    environment = Path(f"/proc/{client._process.pid}/environ").read_bytes()
    assert b"sk-secret" not in environment
    assert b"PATH=" in environment
    assert search_client.ENVIRONMENT_PASSED


def test_a_search_process_ends_with_the_one_that_asks_it(work: Path, client: SearchClient) -> None:
    call(work, "grep", pattern="plain")
    process = client._process
    assert process is not None
    assert client._control is not None
    client._control.close()  # as the kernel does for a worker that was killed
    assert process.wait(30) == 0
