"""Recorded histories run again: today's workflow code still decides as it did then."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from holdfast.temporal.payloads import data_converter
from tests.replay import control_stories  # noqa: F401 (it adds its stories)
from tests.replay.stories import MARK, STORIES
from worker.parts import WORKFLOWS

FOLDER = Path(__file__).with_name("histories")
HISTORIES = sorted(FOLDER.glob("*.json"))
TEXT_BYTES_MAX = 2000


def name_of(path: Path) -> str:
    return path.name.removesuffix(".json")


def texts(value: Any) -> Iterator[str]:
    """Every text of a history, payloads decoded."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "data" and isinstance(inner, str):
                yield base64.b64decode(inner).decode("utf-8", "replace")
            else:
                yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def test_there_is_a_history_of_every_story() -> None:
    assert {path.name.split(".")[0] for path in HISTORIES} == set(STORIES)


@pytest.mark.parametrize("path", HISTORIES, ids=name_of)
async def test_a_recorded_history_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(name_of(path), path.read_text(encoding="utf-8"))
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    await replayer.replay_workflow(history)


@pytest.mark.parametrize("path", HISTORIES, ids=name_of)
def test_a_history_holds_no_word_of_a_prompt_or_an_answer(path: Path) -> None:
    found = list(texts(json.loads(path.read_text(encoding="utf-8"))))
    assert not [text for text in found if MARK in text]
    assert max(len(text) for text in found) < TEXT_BYTES_MAX
