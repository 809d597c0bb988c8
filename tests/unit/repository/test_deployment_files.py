"""The files for a fleet are valid, and say the same as the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from holdfast.domain.wire import SEARCH_ATTRIBUTES
from holdfast.settings.environment import Settings
from holdfast.settings.secret_files import SECRETS
from holdfast.supervisor.temporal import DYNAMIC_CONFIG

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
    assert used
    assert used <= _known_variables()


def test_the_fleets_temporal_gets_our_search_attributes() -> None:
    script = (ROOT / "deploy" / "compose" / "temporal-namespace").read_text(encoding="utf-8")
    assert f"for name in {' '.join(SEARCH_ATTRIBUTES)}; do" in script


def test_the_fleets_temporal_polls_as_often_as_the_embedded_one() -> None:
    fleet = YAML(typ="safe").load(ROOT / "deploy" / "compose" / "temporal-dynamic.yaml")
    embedded = dict(value.split("=") for value in DYNAMIC_CONFIG)
    told = {name: str(values[0]["value"]).lower() for name, values in fleet.items()}
    assert told
    assert {name: embedded[name] for name in told} == told


def test_no_password_of_the_fleet_has_a_default_or_stands_in_a_variable() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    services = YAML(typ="safe").load(text)["services"]
    plain = [
        f"{name}: {variable}"
        for name, service in services.items()
        for variable in service.get("environment", {})
        if any(word in variable for word in ("PASSWORD", "PWD", "KEY", "TOKEN", "DATABASE_URL"))
        and not variable.endswith("_FILE")
    ]
    assert plain == []
    assert ":-holdfast" not in text


def test_only_workers_get_provider_keys() -> None:
    services = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
    with_keys = {
        n for n, service in services.items() if "provider_key" in service.get("secrets", [])
    }
    assert with_keys == {"worker-a", "worker-b"}


def test_every_service_that_stays_has_a_limit_and_time_to_stop() -> None:
    services = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
    staying = {n: s for n, s in services.items() if s.get("restart") == "unless-stopped"}
    assert len(staying) >= 7
    assert [name for name, service in staying.items() if "mem_limit" not in service] == []
    ours = {name: s for name, s in staying.items() if s.get("image", "").startswith("holdfast")}
    assert [
        n for n, s in ours.items() if "stop_grace_period" not in s or "healthcheck" not in s
    ] == []


def test_the_scripts_of_the_compose_file_are_shell_scripts() -> None:
    for name in ("make-secrets", "temporal-schema", "temporal-server", "temporal-namespace"):
        script = ROOT / "deploy" / "compose" / name
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
        assert script.stat().st_mode & 0o100


def test_the_kubernetes_base_fits_its_schemas_strictly() -> None:
    base = ROOT / "deploy" / "kubernetes" / "base"
    listed = YAML(typ="safe").load(base / "kustomization.yaml")["resources"]
    files = sorted(path.name for path in base.glob("*.yaml") if path.name != "kustomization.yaml")
    assert sorted(listed) == files
    command = [str(Path(sys.executable).with_name("kubernetes-validate")), "--strict", *files]
    answer = subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_kubernetes_base_uses_only_variables_that_exist() -> None:
    base = ROOT / "deploy" / "kubernetes" / "base"
    known = _known_variables()
    for path in base.glob("*.yaml"):
        used = set(re.findall(r"HOLDFAST_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert used <= known, path


def test_the_units_of_systemd_use_only_variables_and_commands_that_exist() -> None:
    folder = ROOT / "deploy" / "systemd"
    used = set(re.findall(r"HOLDFAST_[A-Z_]+", (folder / "environment.example").read_text()))
    assert used <= _known_variables()
    started = {
        line.split()[-1]
        for unit in folder.glob("*.service")
        for line in unit.read_text().splitlines()
        if line.startswith("ExecStart=")
    }
    assert started == {"api", "worker", "terminal-host"}


def _known_variables() -> set[str]:
    settings = {f"HOLDFAST_{name.upper()}" for name in Settings.model_fields}
    return settings | {f"HOLDFAST_{name.upper()}_FILE" for name in SECRETS}


def test_every_variable_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    internal = {"temporal_embedded", "temporal_ui_address"}
    names = [f"HOLDFAST_{name.upper()}" for name in Settings.model_fields if name not in internal]
    assert [name for name in names if name not in page] == []
