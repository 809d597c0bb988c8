"""Settings: defaults, derived paths, and errors that name what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.worker import PollerBehaviorAutoscaling, PollerBehaviorSimpleMaximum

from holdfast.settings.config import Config, load_config, parse_config
from holdfast.settings.environment import Settings, SettingsError
from holdfast.terminal.cages.limits import CageLimits
from worker.main import pollers


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HOLDFAST_{name.upper()}", raising=False)


def test_the_defaults_are_those_of_the_contract(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert settings.bind == "127.0.0.1:8420"
    assert settings.api_url == "http://127.0.0.1:8420"
    assert settings.database_url == f"sqlite:///{tmp_path / 'holdfast.sqlite'}"
    assert settings.temporal_embedded
    assert (settings.temporal_namespace, settings.task_queue) == ("default", "holdfast")
    assert settings.terminal_socket == tmp_path / "terminal.sock"


def test_variables_of_the_environment_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOLDFAST_BIND", "[::1]:9000")
    monkeypatch.setenv("HOLDFAST_TEMPORAL_ADDRESS", "temporal:7233")
    settings = Settings.load()
    assert settings.home == tmp_path / "elsewhere"
    assert settings.api_url == "http://[::1]:9000"
    assert settings.bind_is_loopback
    assert not settings.temporal_embedded


def test_a_child_sees_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, bind="127.0.0.1:9999")
    for name, value in settings.child_environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.load() == settings


def test_a_part_run_by_hand_finds_the_running_temporal(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"temporal_address": "127.0.0.1:4444"}')
    assert Settings(home=tmp_path).temporal_address == "127.0.0.1:4444"


def test_a_home_too_deep_for_a_socket_gets_a_short_one(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    socket = Settings(home=deep).terminal_socket
    assert len(str(socket)) <= 107
    assert socket == Settings(home=deep).terminal_socket
    assert socket != Settings(home=tmp_path / ("y" * 120)).terminal_socket


def test_a_bind_without_a_port_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BIND", "localhost")
    with pytest.raises(SettingsError, match="HOLDFAST_BIND: must be host:port"):
        Settings.load()


def test_a_worker_polls_as_ever_or_up_to_a_number_that_is_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(pollers(Settings().pollers_max), PollerBehaviorSimpleMaximum)
    monkeypatch.setenv("HOLDFAST_POLLERS_MAX", "30")
    grown = pollers(Settings().pollers_max)
    assert isinstance(grown, PollerBehaviorAutoscaling)
    assert (grown.minimum, grown.initial, grown.maximum) == (2, 5, 30)
    monkeypatch.setenv("HOLDFAST_POLLERS_MAX", "4")
    with pytest.raises(SettingsError, match="HOLDFAST_POLLERS_MAX: must be 0, or 5 to 100"):
        Settings.load()


def test_the_home_is_private(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    settings.make_home()
    assert settings.home.stat().st_mode & 0o777 == 0o700


def test_without_a_provider_the_demo_answers(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config.aliases == {"default": "scripted:demo"}
    assert config.providers["scripted"].driver == "scripted"
    assert config.limits.running_sessions_per_project == 4
    assert config.limits.running_sessions_per_operator == 16
    assert (config.retention.frames_minutes, config.retention.frames_mib) == (10, 50)


def test_a_configured_provider_is_read_and_its_key_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = b"""
    [providers.local]
    driver = "openai"
    base_url = "http://127.0.0.1:1234/v1"
    api_key_env = "SOME_KEY"
    headers = {"X-Team" = "search", "X-Pass" = "secret"}
    [aliases]
    default = "local:small"
    """
    monkeypatch.setenv("SOME_KEY", "secret")
    config = parse_config(text, Path("config.toml"))
    assert config.providers["local"].headers == {"X-Team": "search", "X-Pass": "secret"}
    assert config.providers["local"].key() == "secret"
    assert config.aliases == {"default": "local:small"}
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[limits]\nrunning = 3", 'unknown key "limits.running"'),
        (b"colour = 1", 'unknown key "colour"'),
        (b"[providers.x]\ndriver = 'cobol'", "providers.x.driver"),
        (b"[providers.x]\ndriver = 'openai'\nheaders = {'a b' = 'c'}", "'a b' is not a header"),
        (b"[providers.x]\ndriver = 'openai'\nheaders = {a = \"b\\nc\"}", "'a' is not a header"),
        (b"[aliases]\nfast = 'nobody:model'", 'no provider "nobody" is configured'),
        (b"[aliases]\nfast = 'model'", 'must be "provider:model"'),
        (b"[terminals]\nscrollback_lines = 99", "terminals.scrollback_lines: "),
        (b"[terminals]\nscrollback_lines = 50001", "less than or equal to 50000"),
        (b"[terminals]\nscrollback_lines = 'all'", "terminals.scrollback_lines: "),
        (b"[terminals]\nlines = 3", 'unknown key "terminals.lines"'),
        (b"[limits\n", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"providers = 3", "providers"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(text: bytes, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_config(text, Path("/home/config.toml"))
    assert "/home/config.toml" in str(caught.value)
    assert words in str(caught.value)


def test_an_empty_file_is_the_defaults() -> None:
    assert parse_config(b"", Path("config.toml")) == Config()


@pytest.mark.req("T-018")
def test_the_backend_of_chats_is_a_name_or_a_factory(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert Config().chats.backend == "database"
    assert Config().chats.cache_hours == 24
    for name in ("database", "memory", "my_package.stores:RedisStore"):
        text = f'[chats]\nbackend = "{name}"\ncache_hours = 0.5\n'
        assert parse_config(text.encode(), path).chats.backend == name
    for wrong in ('backend = "paper"', 'backend = "a:b; c"', "cache_hours = 0", "store = 1"):
        with pytest.raises(SettingsError, match="chats"):
            parse_config(f"[chats]\n{wrong}\n".encode(), path)


def test_the_limits_of_cages_reach_the_terminal_host_by_its_environment() -> None:
    config = parse_config(b"[cages]\nmemory_mb = 100\ncgroups = false\n", Path("config.toml"))
    limits = CageLimits.from_environment(config.cages.to_environment())
    assert limits == CageLimits(memory_mb=100, cgroups=False)
    assert CageLimits.from_environment(Config().cages.to_environment()) == CageLimits()
