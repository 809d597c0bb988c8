"""Who embeds for a project: what it says, what config.toml says, and what is done about trouble."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.domain.memory import MemorySettings
from holdfast.memory.embedders import choosing
from holdfast.memory.embedders.choosing import choose, embedder_of
from holdfast.memory.embedders.deadline import REST_S, DeadlineEmbedder
from holdfast.memory.embedders.embedding import Embedder, EmbeddingFailed
from holdfast.memory.embedders.http import provider_key
from holdfast.memory.pool import directory_of, inside
from holdfast.settings.config import Config, parse_config
from tests.stub.openai_stub import OpenAIStub

CONFIG = b"""
[providers.cloud]
driver = "openai"
[providers.here]
driver = "ollama"
[providers.words]
driver = "anthropic"
[memory]
embedding = "here:small"
allow_paths = ["/srv/notes"]
"""


@pytest.fixture
def config() -> Config:
    return parse_config(CONFIG, Path("config.toml"))


class Slow:
    """An embedder that answers when it is let, or fails."""

    provider, model, key = "slow", "one", "key"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.failure: EmbeddingFailed | None = None
        self.asked = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        assert self.go.wait(60)
        return [[1.0] for _ in texts]


def named(settings: MemorySettings, config: Config) -> tuple[str, str] | None:
    chosen = choose(settings, config)
    if chosen.embedder is None or chosen.embedder.current is None:
        return None
    return chosen.embedder.current.provider, chosen.embedder.current.model


def test_a_project_says_who_embeds_and_config_toml_when_it_does_not(config: Config) -> None:
    assert named(MemorySettings(), config) == ("here", "small")
    assert named(MemorySettings(embedding="cloud:large:v2"), config) == ("cloud", "large:v2")
    assert named(MemorySettings(embedding="none"), config) is None
    assert named(MemorySettings(embedding="none", fallback="here:small"), config) == (
        "here",
        "small",
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody:small", "no provider 'nobody'"),
        ("words:small", "'anthropic' has no embeddings"),
        ("cloud", 'must be "none", "local" or "provider:model"'),
        ("cloud:", 'must be "none"'),
        ("local", "are not installed"),
    ],
)
def test_a_name_that_cannot_be_used_is_a_warning(
    config: Config, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_local", lambda: None)
    chosen = choose(MemorySettings(embedding=name), config)
    assert chosen.embedder is None
    [said] = chosen.warnings()
    assert words in said


@pytest.mark.req("O-014")
def test_the_headers_of_a_provider_are_sent_and_make_another_key() -> None:
    def chosen(stub: OpenAIStub, headers: str) -> Embedder:
        said = f'[providers.a]\ndriver = "openai"\nbase_url = "{stub.base_url}"\n{headers}'
        found = embedder_of("a:model", parse_config(said.encode(), Path("config.toml")))
        assert found is not None
        return found

    with OpenAIStub() as stub:
        plain, team = chosen(stub, ""), chosen(stub, 'headers = {"X-Team" = "search"}')
        for one in (plain, team):
            one.embed(["a"])
            DeadlineEmbedder(one).close()
        assert [one.headers.get("x-team") for one in stub.requests] == [None, "search"]
        assert team.key == provider_key(stub.base_url, "model", {"X-Team": "search"})
    assert plain.key != team.key


def test_the_key_of_a_provider_is_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_KEY", "secret-of-a-provider")
    with OpenAIStub() as stub:
        said = f'[providers.a]\ndriver = "openai"\nbase_url = "{stub.base_url}"\n'
        said += 'api_key_env = "MEMORY_KEY"\n'
        found = embedder_of("a:model", parse_config(said.encode(), Path("config.toml")))
        assert found is not None
        found.embed(["a"])
        DeadlineEmbedder(found).close()
        assert stub.requests[0].headers["authorization"] == "Bearer secret-of-a-provider"


def test_auto_without_the_packages_is_words_alone_and_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "_local", lambda: None)
    chosen = choose(MemorySettings(), Config())
    assert (chosen.embedder, chosen.warnings()) == (None, [])


@pytest.mark.req("O-030")
def test_trouble_that_may_pass_is_waited_for_by_the_patient(config: Config) -> None:
    embedders = choose(MemorySettings(fallback="cloud:other"), config).embedder
    assert embedders is not None
    embedders.patient = True
    assert not embedders.fall_back(EmbeddingFailed("busy", passing=True))
    assert embedders.fall_back(EmbeddingFailed("no such model", passing=False))
    assert embedders.current is not None
    assert embedders.current.provider == "cloud"
    impatient = choose(MemorySettings(), config).embedder
    assert impatient is not None
    assert impatient.fall_back(EmbeddingFailed("busy", passing=True))
    assert impatient.current is None


def test_who_asks_does_not_wait_for_an_embedder_that_hangs() -> None:
    slow, now = Slow(), 100.0
    noted = DeadlineEmbedder(slow, within_s=0.01, clock=lambda: now)
    with pytest.raises(EmbeddingFailed, match="did not answer within"):
        noted.embed(["a"])
    with pytest.raises(EmbeddingFailed):
        noted.embed(["a"])
    assert slow.asked == 1, "it rests, so that not every search waits"
    assert noted.trouble is not None
    slow.go.set()
    now += REST_S
    patient = DeadlineEmbedder(slow)
    assert patient.embed(["a", "b"]) == [[1.0], [1.0]]
    assert patient.trouble is None


def test_trouble_is_remembered_until_an_answer_comes() -> None:
    slow = Slow()
    slow.go.set()
    noted = DeadlineEmbedder(slow, within_s=60)
    slow.failure = EmbeddingFailed("no such model", passing=False)
    with pytest.raises(EmbeddingFailed):
        noted.embed(["a"])
    assert noted.trouble == "no such model"
    slow.failure = None
    assert noted.embed(["a"]) == [[1.0]]
    assert noted.trouble is None


def test_paths_lead_out_of_a_project_only_where_config_toml_says(
    config: Config, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to(tmp_path)
    fine = ["docs", "./docs/../notes", str(project / "deep"), "/srv/notes", "/srv/notes/a.md"]
    wrong = ["..", "../other", "/srv", "/srv/notes-2", "~", "~nobody-at-all/x", "link", "a\0b"]
    allowed, ignored = inside(project, [*fine, " ", *wrong], config)
    assert [Path(one) for one in allowed] == [Path(one) for one in fine]
    assert len(ignored) == len(wrong)


@pytest.mark.req("O-001")
def test_indexes_lie_in_the_home_or_where_config_toml_says(tmp_path: Path) -> None:
    assert directory_of(tmp_path, Config()) == tmp_path / "memory"
    for said, meant in (("other", tmp_path / "other"), ("/srv/m", Path("/srv/m"))):
        config = parse_config(f'[memory]\ndirectory = "{said}"\n'.encode(), Path("config.toml"))
        assert directory_of(tmp_path, config) == meant


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://localhost:1234", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]/v1", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example.com", False),
        ("nothing", False),
    ],
)
def test_only_this_machine_is_asked_without_a_proxy(address: str, here: bool) -> None:
    assert choosing._is_loopback(address) is here
