"""The host's memory of processes: what is kept, for how long, and what the next host sees."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.terminal import registry as registries
from holdfast.terminal.errors import UnknownProcess
from holdfast.terminal.exits import KEEP_SECONDS, Folders
from holdfast.terminal.process import HostedProcess
from holdfast.terminal.records import Exit, Reason, SpawnRequest
from holdfast.terminal.registry import Registry
from holdfast.terminal.screens.screen import Screens
from holdfast.terminal.transcript import TranscriptWriter

OVER = Exit(Reason.EXITED, 0, None, 1, 1, 0, 0)


def open_registry(state: Path) -> Registry:
    def announce(_event: str, _process: HostedProcess, _details: dict[str, Any]) -> None:
        pass

    return Registry(state, Screens(), announce)


def record(state: Path, key: str, *, started_at_ms: int = 1, over: Exit | None = OVER) -> Path:
    """What an earlier host left behind."""
    folder = Folders(state / "processes").of(key)
    folder.write_request(SpawnRequest(key=key, session_id="s", command="true"), started_at_ms)
    if over is not None:
        folder.write_exit(over)
    return folder.path


async def test_what_ended_under_an_earlier_host_is_known(tmp_path: Path) -> None:
    record(tmp_path, "old")
    process = open_registry(tmp_path).get("old")
    assert process.exit == OVER
    again, created = await open_registry(tmp_path).spawn(process.request)
    assert not created
    assert again.exit == OVER


async def test_what_has_no_end_is_lost_with_what_it_said(tmp_path: Path) -> None:
    folder = record(tmp_path, "lost", over=None)
    writer = TranscriptWriter(folder / "transcript")
    writer.append(b"two\nlines\n", 1.0)
    over = open_registry(tmp_path).get("lost").exit
    assert over is not None
    assert (over.reason, over.output_bytes, over.output_lines) == (Reason.LOST, 10, 2)
    assert (folder / "exit.json").exists()
    writer.close(b"", 2.0)


async def test_a_folder_that_a_crash_left_unfinished_frees_its_key(tmp_path: Path) -> None:
    folder = Folders(tmp_path / "processes").of("half")
    folder.path.mkdir()
    (folder.path / "request.draft").write_text('{"half')
    with pytest.raises(UnknownProcess):
        open_registry(tmp_path).get("half")
    assert not folder.path.exists()


async def test_a_damaged_exit_is_a_loss_and_not_a_crash(tmp_path: Path) -> None:
    folder = record(tmp_path, "damaged")
    (folder / "exit.json").write_text("[]")
    over = open_registry(tmp_path).get("damaged").exit
    assert over is not None
    assert over.reason is Reason.LOST


async def test_after_a_day_a_key_is_forgotten(tmp_path: Path) -> None:
    old, new = record(tmp_path, "old"), record(tmp_path, "new")
    yesterday = time.time() - KEEP_SECONDS - 1
    os.utime(old / "exit.json", (yesterday, yesterday))
    registry = open_registry(tmp_path)
    registry.tick()
    assert not old.exists()
    assert new.exists()
    with pytest.raises(UnknownProcess):
        registry.get("old")


async def test_many_ended_processes_are_on_disk_and_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "FINISHED_IN_MEMORY_MAX", 3)
    for number in range(6):
        record(tmp_path, f"key-{number}", started_at_ms=number + 1)
    registry = open_registry(tmp_path)
    assert [process.key for process in registry.select()] == ["key-3", "key-4", "key-5"]
    assert registry.get("key-0").exit == OVER


async def test_the_values_of_variables_are_not_written_to_disk(tmp_path: Path) -> None:
    request = SpawnRequest(key="k", session_id="s", command="true", env={"TOKEN": "secret"})
    folder = Folders(tmp_path).of("k")
    folder.write_request(request, 1)
    assert "secret" not in (folder.path / "request.json").read_text()
