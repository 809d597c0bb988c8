"""Embedders: HTTP with its batches and retries, checks of answers, and falling back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import httpx2
import pytest

from holdfast.memory.embedders.embedding import NOBODY, EmbeddingFailed, embed, identity_of
from holdfast.memory.embedders.fallback import RETURN_AFTER_S, FallbackEmbedder
from holdfast.memory.embedders.http import (
    ATTEMPTS,
    BATCH_TEXTS,
    HttpEmbedder,
    batches_of,
    provider_key,
)
from tests.support.memory_file import WordEmbedder

Answer = Callable[[httpx2.Request], httpx2.Response]


def vectors(request: httpx2.Request) -> httpx2.Response:
    """Backwards, as a server may: the index says which is which."""
    texts = json.loads(request.content)["input"]
    data = [{"index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(texts)]
    return httpx2.Response(200, json={"data": data[::-1]})


class Server:
    """Answers in turn, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.pauses: list[float] = []

    def embedder(self, **more: object) -> HttpEmbedder:
        return HttpEmbedder(
            "stub",
            "model-1",
            "http://stub/v1/",
            transport=httpx2.MockTransport(self._answer),
            pause=self.pauses.append,
            **more,  # type: ignore[arg-type]
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request)


def status(code: int, **headers: str) -> Answer:
    return lambda _request: httpx2.Response(code, headers=headers, text="no")


def said(content: object) -> Answer:
    return lambda _request: httpx2.Response(200, content=json.dumps(content))


def test_texts_become_vectors_in_their_order() -> None:
    server = Server(vectors)
    embedder = server.embedder(api_key="sk-1", headers={"X-Team": "a"})
    assert embedder.embed(["a", "bbb"]) == [[1.0, 1.0], [3.0, 1.0]]
    [request] = server.requests
    assert str(request.url) == "http://stub/v1/embeddings"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["x-team"] == "a"
    assert json.loads(request.content) == {"model": "model-1", "input": ["a", "bbb"]}
    embedder.close()


def test_many_texts_are_sent_in_batches() -> None:
    server = Server(vectors)
    embedder = server.embedder()
    texts = ["x" * (n % 7) for n in range(BATCH_TEXTS * 2 + 1)]
    assert [one[0] for one in embedder.embed(texts)] == [float(n % 7) for n in range(len(texts))]
    assert len(server.requests) == 3
    assert [len(batch) for batch in batches_of(["x" * 70_000] * 3)] == [1, 1, 1]
    assert list(batches_of([])) == []
    embedder.close()


@pytest.mark.parametrize("passing", [429, 500, 503])
def test_what_is_passing_is_tried_again(passing: int) -> None:
    server = Server(status(passing), status(passing, **{"retry-after": "7"}), vectors)
    embedder = server.embedder()
    assert embedder.embed(["a"]) == [[1.0, 1.0]]
    assert server.pauses == [0.5, 7.0]
    embedder.close()


def test_a_server_that_stays_away_fails_for_now() -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    for trouble in (refused, status(503, **{"retry-after": "99999"})):
        server = Server(trouble)
        embedder = server.embedder()
        with pytest.raises(EmbeddingFailed) as failed:
            embedder.embed(["a"])
        assert failed.value.passing
        assert len(server.requests) == ATTEMPTS
        assert max(server.pauses) <= 20
        embedder.close()


@pytest.mark.parametrize("code", [301, 400, 401, 404])
def test_a_refusal_is_final(code: int) -> None:
    server = Server(status(code))
    embedder = server.embedder()
    with pytest.raises(EmbeddingFailed) as failed:
        embedder.embed(["a"])
    assert not failed.value.passing
    assert len(server.requests) == 1
    embedder.close()


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"data": None},
        {"data": []},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]},
        {"data": [{"embedding": []}]},
        {"data": [{"embedding": ["1"]}]},
        {"data": [{"embedding": [True]}]},
        {"data": [{"embedding": "AAAA"}]},
        {"data": ["x"]},
        "words",
    ],
)
def test_an_answer_that_makes_no_sense_is_final(content: object) -> None:
    embedder = Server(said(content)).embedder()
    with pytest.raises(EmbeddingFailed) as failed:
        embed(embedder, ["a"])
    assert not failed.value.passing
    embedder.close()


@pytest.mark.req("O-014")
def test_the_key_hangs_on_address_model_and_headers_and_on_no_secret() -> None:
    key = provider_key("http://a/v1", "m", {"X-Team": "a", "Authorization": "Bearer sk-1"})
    assert key == provider_key("http://a/v1/", "m", {"x-team": "a", "X-Api-Key": "other"})
    assert "sk-1" not in key
    others = [
        provider_key("http://b/v1", "m", {"X-Team": "a"}),
        provider_key("http://a/v1", "n", {"X-Team": "a"}),
        provider_key("http://a/v1", "m", {"X-Team": "b"}),
    ]
    assert len({key, *others}) == 4


class Odd(WordEmbedder):
    def __init__(self, answer: list[list[float]]) -> None:
        super().__init__()
        self.answer = answer

    def embed(self, texts: object) -> list[list[float]]:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [[], [[1.0]], [[1.0], [1.0, 2.0]], [[], []], [[1.0], [math.nan]], [[math.inf], [1.0]]],
)
def test_vectors_are_checked_whoever_sent_them(answer: list[list[float]]) -> None:
    with pytest.raises(EmbeddingFailed):
        embed(Odd(answer), ["a", "b"])


def test_vectors_have_length_one() -> None:
    assert embed(Odd([[3.0, 4.0], [0.0, 0.0]]), ["a", "b"]) == [[0.6, 0.8], [0.0, 0.0]]


@pytest.mark.req("O-030")
def test_the_wanted_one_gives_way_and_is_tried_again_later() -> None:
    now = [0.0]
    wanted, other = WordEmbedder("wanted"), WordEmbedder("other")
    embedders = FallbackEmbedder(wanted, other, clock=lambda: now[0])
    failed = EmbeddingFailed("401", passing=False)
    assert embedders.current is wanted
    assert embedders.fall_back(failed)
    assert (embedders.current, embedders.reason) == (other, "401")
    assert embedders.fall_back(failed)
    assert identity_of(embedders.current) == NOBODY
    assert not embedders.fall_back(failed)
    now[0] = RETURN_AFTER_S - 1
    embedders.try_wanted_again()
    assert embedders.current is None
    now[0] = RETURN_AFTER_S
    embedders.try_wanted_again()
    assert (embedders.current, embedders.reason) == (wanted, None)


@pytest.mark.req("O-034")
def test_without_any_embedder_only_words_are_indexed() -> None:
    assert FallbackEmbedder(None).current is None
    assert identity_of(None) == ("none", "fts-only", "")


def test_trouble_without_words_is_told_by_its_kind() -> None:
    def break_off(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("")

    with pytest.raises(EmbeddingFailed, match="stub is not reachable: ReadError"):
        Server(break_off).embedder().embed(["a"])
