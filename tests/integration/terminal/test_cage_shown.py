"""A session tells what holds its programs, and the terminal host is who knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.terminals import Terminals
from holdfast.domain.cages.defaults import MEMORY_MB, PIDS
from holdfast.terminal.cages.finding import machine_cage
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.servers.terminal_hosts import TestHost

CAGED = "primary:\n  cage: {net: false, memory_mb: 64, pids: 32}\n"


def shown(caller: Caller, folder: Path, text: str | None) -> dict[str, Any]:
    """The cage of a new session in a folder with this project file."""
    if text is not None:
        (folder / ".holdfast").mkdir(parents=True)
        file = f"version: 1\nproject: {folder.name}\n{text}"
        (folder / ".holdfast/project.yaml").write_text(file)
    session = caller.session(caller.project(folder)["id"])
    cage: dict[str, Any] = caller.http.get(f"/sessions/{session['id']}").json()["cage"]
    return cage


@pytest.fixture
def hosted(api: ApiServer, spare_host: TestHost) -> TestHost:
    """A real terminal host behind the API."""
    assert api.services is not None
    settings = api.settings.model_copy(update={"terminal_socket": spare_host.socket})
    api.services.terminals._settings = settings
    api.services.terminals._ask_at = 0.0
    return spare_host


@pytest.mark.usefixtures("hosted")
def test_a_session_tells_its_cage_and_the_doctor_that_of_the_machine(
    caller: Caller, tmp_path: Path
) -> None:
    machine = machine_cage()
    expected = {
        "kind": machine.kind,
        "program": machine.program,
        "reduced": list(machine.reduced),
        "why": machine.why,
        "network": "none",
    }
    limits = {"memory_mb": 64, "pids": 32}
    assert shown(caller, tmp_path / "caged", CAGED) == {**expected, "limits": limits}
    found = caller.http.post("/admin/consistency?mode=quick").json()["cage"]
    assert found == {**expected, "limits": {"memory_mb": MEMORY_MB, "pids": PIDS}}


@pytest.mark.usefixtures("hosted")
def test_a_session_without_a_cage_says_that_its_project_file_wants_none(
    caller: Caller, tmp_path: Path
) -> None:
    cage = shown(caller, tmp_path / "bare", "primary:\n  cage: disabled\n")
    assert (cage["kind"], cage["network"]) == ("none", "machine")
    assert "cage: disabled" in cage["why"]


def test_without_a_terminal_host_the_cage_is_unknown(
    api: ApiServer, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.services is not None
    nowhere = api.settings.model_copy(update={"terminal_socket": tmp_path / "no.sock"})
    monkeypatch.setattr(api.services, "terminals", Terminals(nowhere, api.store))
    cage = shown(caller, tmp_path / "caged", CAGED)
    assert (cage["kind"], cage["why"]) == ("unknown", "the terminal host does not answer")
