"""The files for a fleet are valid, and say the same as the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from holdfast.domain.wire import SEARCH_ATTRIBUTES
from holdfast.settings.environment import Settings

ROOT = Path(__file__).resolve().parents[3]


def test_the_compose_file_fits_the_compose_schema() -> None:
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec", "docker-compose.yml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_compose_file_uses_only_variables_that_exist() -> None:
    compose = YAML(typ="safe").load(ROOT / "docker-compose.yml")
    used = {
        name
        for service in compose["services"].values()
        for name in service.get("environment", {})
        if name.startswith("HOLDFAST_")
    }
    known = {f"HOLDFAST_{name.upper()}" for name in Settings.model_fields}
    assert used
    assert used <= known


def test_the_fleets_temporal_gets_our_search_attributes() -> None:
    compose = YAML(typ="safe").load(ROOT / "docker-compose.yml")
    command = compose["services"]["temporal-setup"]["entrypoint"]
    assert [f"--name={name}" for name in SEARCH_ATTRIBUTES] == command[4::2]


def test_every_variable_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    internal = {"temporal_embedded", "temporal_ui_address"}
    names = [f"HOLDFAST_{name.upper()}" for name in Settings.model_fields if name not in internal]
    assert [name for name in names if name not in page] == []
