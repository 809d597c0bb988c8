"""What `holdfast up` and `holdfast api` refuse to start on, each with what to do about it."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest

from holdfast.cli.part import run_part
from holdfast.settings.environment import Settings
from holdfast.supervisor.loop import run_supervisor

MISCONFIGURED = 78


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HOLDFAST_{name.upper()}", raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


def test_a_taken_port_is_said_by_name(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = run_supervisor(Settings(home=home, bind=f"127.0.0.1:{port}"))
    assert code == MISCONFIGURED
    assert f"port {port} on 127.0.0.1 is in use" in capfd.readouterr().err


def test_a_mistake_in_the_configuration_is_named(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text("[limits]\nsessions = 3\n")
    assert run_supervisor(Settings.load()) == MISCONFIGURED
    assert f'{home / "config.toml"}: unknown key "limits.sessions"' in capfd.readouterr().err


def test_a_home_that_cannot_be_made_is_named(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "file").touch()
    assert run_supervisor(Settings(home=home / "file" / "home")) == MISCONFIGURED
    assert str(home / "file") in capfd.readouterr().err


def test_a_database_newer_than_the_code_is_refused(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    database = sqlite3.connect(home / "holdfast.sqlite")
    database.execute("CREATE TABLE alembic_version (version_num TEXT)")
    database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.commit()
    database.close()
    assert run_part("api") == MISCONFIGURED
    assert "revision 9999, newer than this Holdfast knows" in capfd.readouterr().err


def test_a_damaged_database_is_refused(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "holdfast.sqlite").write_bytes(b"this is no database" * 500)
    assert run_part("api") == MISCONFIGURED
    assert "Put back a backup" in capfd.readouterr().err


def test_a_public_address_without_an_operator_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_BIND", "0.0.0.0:8420")
    assert run_part("api") == MISCONFIGURED
    assert "holdfast operator add" in capfd.readouterr().err
