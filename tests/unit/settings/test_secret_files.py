"""Secrets in files, as containers get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.settings.config import parse_config
from holdfast.settings.environment import Settings, SettingsError


def test_the_database_url_is_read_from_the_file_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "database_url"
    secret.write_text("postgresql://user:secret@db/holdfast\n")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL_FILE", str(secret))
    assert Settings.load().database_url == "postgresql://user:secret@db/holdfast"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://other/one")
    assert Settings.load().database_url == "postgresql://other/one"


@pytest.mark.parametrize("content", [None, "", "  \n"])
def test_a_named_file_without_a_secret_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "empty").write_text(content)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL_FILE", str(tmp_path / "empty"))
    with pytest.raises(SettingsError, match="HOLDFAST_DATABASE_URL_FILE"):
        Settings.load()


def test_a_providers_key_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = b'[providers.one]\ndriver = "openai"\napi_key_env = "ONE_KEY"\n'
    provider = parse_config(text, tmp_path / "config.toml").providers["one"]
    (tmp_path / "key").write_text("sk-of-a-file\n")
    monkeypatch.setenv("ONE_KEY_FILE", str(tmp_path / "key"))
    assert provider.key() == "sk-of-a-file"
    monkeypatch.setenv("ONE_KEY", "sk-of-the-environment")
    assert provider.key() == "sk-of-the-environment"
