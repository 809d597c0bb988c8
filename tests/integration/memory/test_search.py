"""Searching: words and vectors together, words alone, and everything bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.memory import (
    MAX_LIMIT,
    DecaySettings,
    MemorySettings,
    MmrSettings,
    QuerySettings,
)
from holdfast.memory.embedders.embedding import EmbeddingFailed
from holdfast.memory.embedders.local import LocalEmbedder, available
from holdfast.memory.ranking import DAY_MS
from tests.support.memory_file import MemoryFile, WordEmbedder

NOW_MS = 1_780_000_000_000
NOTES = {
    "MEMORY.md": "The cache is redis on port 6379.",
    "memory/deploy.md": "Deploy the staging server with make ship.",
    "memory/2020-01-01.md": "The database is postgres.",
    "memory/tokyo.md": "次の会議は東京都庁で行います。",
    "sessions/1.md": "We spoke of redis and of sentinels.",
}
BOTH = MemorySettings(sources=["memory", "sessions"])


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryFile]:
    memory = MemoryFile(tmp_path_factory.mktemp("words"), NOTES, settings=BOTH)
    memory.sync()
    yield memory
    memory.close()


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryFile]:
    folder = tmp_path_factory.mktemp("hybrid")
    memory = MemoryFile(folder, NOTES, embedder=WordEmbedder(dims=64), settings=BOTH)
    memory.sync()
    yield memory
    memory.close()


@pytest.mark.req("O-034")
def test_without_an_embedder_words_are_enough(words: MemoryFile) -> None:
    hits = words.search("staging")
    assert [hit.path for hit in hits] == ["memory/deploy.md"]
    assert (hits[0].vector_score, hits[0].text_score) == (None, 1.0)
    status = words.index.status(None)
    assert (status.provider, status.model, status.vector.engine) == ("none", "fts-only", "none")


@pytest.mark.req("O-034")
def test_words_alone_search_the_chunks_of_all_models(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, {"a.md": "redis one", "b.md": "redis two"})
    memory.sync()
    memory.sql("UPDATE chunks SET model = 'another' WHERE path = 'b.md'")
    assert sorted(memory.paths("redis")) == ["a.md", "b.md"]
    memory.close()


@pytest.mark.req("O-009")
def test_vectors_search_the_chunks_of_their_model_only(tmp_path: Path) -> None:
    texts = {"a.md": "redis one", "b.md": "redis two"}
    memory = MemoryFile(tmp_path, texts, embedder=WordEmbedder())
    memory.sync()
    memory.sql("UPDATE chunks SET model = 'another' WHERE path = 'b.md'")
    assert memory.paths("redis") == ["a.md"]
    memory.close()


@pytest.mark.parametrize("query", ["東京", "都庁", "会議", "東京 会議"])
def test_two_characters_without_spaces_find(words: MemoryFile, query: str) -> None:
    assert words.paths(query) == ["memory/tokyo.md"]


def test_a_question_finds_what_has_some_of_its_words(words: MemoryFile) -> None:
    assert words.paths("how do we deploy to staging?")[0] == "memory/deploy.md"


@pytest.mark.req("O-031", "O-032")
def test_words_and_vectors_are_weighed_together(hybrid: MemoryFile) -> None:
    best = hybrid.search("the cache is redis on port 6379")[0]
    assert best.path == "MEMORY.md"
    assert best.vector_score == pytest.approx(1, abs=0.01)
    assert best.text_score == 1.0
    assert best.score == pytest.approx(0.7 * (best.vector_score or 0) + 0.3, abs=1e-4)


@pytest.mark.req("O-031")
def test_a_hit_with_every_word_is_never_lost_to_the_usual_bound(tmp_path: Path) -> None:
    filler = " ".join(f"filler{n}" for n in range(300))
    texts = {"a.md": f"{filler} TIOCSWINSZ {filler}", "b.md": filler}
    settings = MemorySettings(query=QuerySettings(vector_weight=0.95, text_weight=0.05))
    memory = MemoryFile(tmp_path, texts, embedder=WordEmbedder(dims=512), settings=settings)
    memory.sync()
    [hit] = memory.search("TIOCSWINSZ")
    assert hit.path == "a.md"
    assert hit.score < settings.query.min_score
    # Who sets a bound means it.
    assert memory.index.search("TIOCSWINSZ", limit=None, min_score=0.35) == []
    memory.close()


@pytest.mark.req("O-031")
def test_what_either_way_of_searching_finds_alone_is_not_lost_to_the_bound(tmp_path: Path) -> None:
    settings = MemorySettings(query=QuerySettings(vector_weight=0.5, text_weight=0.5))
    texts = {
        "words.md": "kumquat " + " ".join(f"filler{n}" for n in range(200)),
        "vector.md": "Kumquats persimmon",
        "far.md": "something else",
    }

    class Meaning(WordEmbedder):
        """Knows that kumquats are kumquats."""

        def _vector(self, text: str) -> list[float]:
            if text == "kumquat quince":
                return [1.0, 0.0, 0.0]
            return [0.4, 0.92, 0.0] if text.startswith("Kumquats") else [0.0, 0.0, 1.0]

    memory = MemoryFile(tmp_path, texts, embedder=Meaning(dims=3), settings=settings)
    memory.sync()
    found = {hit.path: hit for hit in memory.search("kumquat quince")}
    assert set(found) == {"words.md", "vector.md"}
    assert found["vector.md"].vector_score == pytest.approx(0.4, abs=0.01)
    assert all(hit.score < settings.query.min_score for hit in found.values())
    memory.close()


@pytest.mark.skipif(not available(), reason="the extra `embeddings` is not installed")
@pytest.mark.req("O-031")
def test_a_question_finds_what_means_the_same_in_other_words(tmp_path: Path) -> None:
    texts = {
        "memory/food.md": "Anna brought an apple cake; it was gone in an hour.",
        "memory/machine.md": "When the box hangs, power-cycle it and check the fans.",
        "memory/money.md": "Invoices are sent on the last Friday of each month.",
    }
    memory = MemoryFile(tmp_path, texts, embedder=LocalEmbedder())
    memory.sync()
    assert memory.paths("how do I restart a frozen computer?")[0] == "memory/machine.md"
    assert memory.paths("when are bills mailed to customers?")[0] == "memory/money.md"
    memory.close()


@pytest.mark.req("O-031")
def test_what_is_hardly_near_is_left_out(hybrid: MemoryFile) -> None:
    assert hybrid.search("zebra") == []
    everything = hybrid.index.search("zebra", limit=50, min_score=0.0)
    assert len(everything) == len(NOTES)
    assert [hit.score for hit in everything] == sorted(
        (hit.score for hit in everything), reverse=True
    )


@pytest.mark.req("O-032")
def test_a_source_can_be_chosen(words: MemoryFile, hybrid: MemoryFile) -> None:
    for memory in (words, hybrid):
        found = memory.index.search("redis", limit=None, min_score=None, sources=["sessions"])
        assert [hit.path for hit in found] == ["sessions/1.md"]
        assert found[0].source == "sessions"
        assert memory.index.search("redis", limit=None, min_score=None, sources=[]) == []


@pytest.mark.req("O-031")
def test_there_are_as_many_hits_as_asked_for_and_never_more(tmp_path: Path) -> None:
    texts = {f"{n}.md": f"redis number {n}" for n in range(60)}
    memory = MemoryFile(tmp_path, texts)
    memory.sync()
    assert len(memory.search("redis")) == 6
    assert len(memory.index.search("redis", limit=9, min_score=None)) == 9
    assert len(memory.index.search("redis", limit=10_000, min_score=None)) == MAX_LIMIT
    assert len(memory.index.search("redis " * 5_000, limit=-1, min_score=None)) == 1
    memory.close()


def test_a_query_whose_embedding_fails_is_answered_by_words(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    memory = MemoryFile(tmp_path, NOTES, embedder=embedder)
    memory.sync()
    embedder.failure = EmbeddingFailed("gone", passing=True)
    [hit] = memory.search("staging")
    assert (hit.path, hit.vector_score) == ("memory/deploy.md", None)
    memory.close()


def test_an_embedder_of_another_model_is_not_asked(hybrid: MemoryFile) -> None:
    stranger = WordEmbedder("stranger", dims=64)
    other = hybrid.again(embedder=stranger)
    assert other.paths("staging") == ["memory/deploy.md"]
    assert stranger.asked == []
    other.close()


@pytest.mark.req("O-033")
def test_numpy_and_sqlite_vec_give_the_same_answers(hybrid: MemoryFile) -> None:
    settings = BOTH.model_copy(update={"vectors": False})
    other = hybrid.again(embedder=WordEmbedder(dims=64), settings=settings)
    for query in ("the database is postgres", "redis", "server", "東京"):
        ours = hybrid.index.search(query, limit=50, min_score=0.0)
        theirs = other.index.search(query, limit=50, min_score=0.0)
        assert [(hit.path, round(hit.score, 4)) for hit in ours] == [
            (hit.path, round(hit.score, 4)) for hit in theirs
        ]
    other.close()


def test_the_array_of_vectors_follows_the_index(tmp_path: Path) -> None:
    settings = MemorySettings(vectors=False)
    memory = MemoryFile(tmp_path, {"a.md": "apples"}, embedder=WordEmbedder(), settings=settings)
    memory.sync()
    assert memory.paths("apples") == ["a.md"]
    memory.notes["b.md"] = "pears"
    memory.sync()
    assert memory.search("pears")[0].vector_score == pytest.approx(1, abs=0.01)
    del memory.notes["a.md"]
    memory.sync()
    assert [one.path for one in memory.index.search("pears", limit=9, min_score=0.0)] == ["b.md"]
    memory.close()


@pytest.mark.req("O-032", "O-033")
@pytest.mark.parametrize("vectors", [True, False])
def test_the_score_of_a_vector_is_its_cosine(tmp_path: Path, vectors: bool) -> None:
    class Known(WordEmbedder):
        """Answers with angles that a test knows."""

        def _vector(self, text: str) -> list[float]:
            return {"near": [4.0, 3.0], "far": [0.0, 2.0]}.get(text, [5.0, 0.0])

    texts = {"near.md": "near", "far.md": "far"}
    settings = MemorySettings(vectors=vectors)
    memory = MemoryFile(tmp_path, texts, embedder=Known(dims=2), settings=settings)
    memory.sync()
    found = memory.index.search("question", limit=9, min_score=0.0)
    scores = {hit.path: hit.vector_score for hit in found}
    assert scores == {"near.md": pytest.approx(0.8), "far.md": pytest.approx(0, abs=1e-6)}
    memory.close()


@pytest.mark.req("O-033")
def test_numpy_finds_the_nearest_of_many(tmp_path: Path) -> None:
    class Angle(WordEmbedder):
        """A number of degrees is a direction."""

        def _vector(self, text: str) -> list[float]:
            degrees = math.radians(float(text))
            return [math.cos(degrees), math.sin(degrees)]

    texts = {f"{n:02}.md": f"{n}" for n in range(80)}
    settings = MemorySettings(vectors=False)
    memory = MemoryFile(tmp_path, texts, embedder=Angle(dims=2), settings=settings)
    memory.sync()
    found = memory.index.search("40", limit=3, min_score=0.0)
    assert sorted(hit.path for hit in found) == ["39.md", "40.md", "41.md"]
    memory.close()


@pytest.mark.req("O-036")
def test_what_is_old_counts_less_when_that_is_wanted(tmp_path: Path) -> None:
    texts = {
        "memory/2026-05-28.md": "redis today",
        "memory/2020-01-01.md": "redis then!",
        "MEMORY.md": "redis always",
    }
    query = QuerySettings(decay=DecaySettings(enabled=True, half_life_days=30))
    memory = MemoryFile(tmp_path, texts, settings=MemorySettings(query=query))
    memory.sync()
    memory.index._clock = lambda: NOW_MS
    memory.notes.mtimes = dict.fromkeys(texts, NOW_MS - 2000 * DAY_MS)
    hits = {hit.path: hit.score for hit in memory.search("redis")}
    assert hits["memory/2020-01-01.md"] < 0.01
    assert hits["memory/2026-05-28.md"] > 0.9
    assert hits["MEMORY.md"] == pytest.approx(1, abs=0.01)
    memory.close()


@pytest.mark.req("O-036")
def test_repetitions_make_way_when_that_is_wanted(tmp_path: Path) -> None:
    texts = {
        "a.md": "redis is the cache of the web tier",
        "b.md": "redis is the cache of the web tier",
        "c.md": "redis needs four gigabytes and a sentinel somewhere else",
    }
    plain = MemoryFile(tmp_path, texts)
    plain.sync()
    assert len({hit.snippet for hit in plain.index.search("redis", limit=2, min_score=None)}) == 1
    query = QuerySettings(mmr=MmrSettings(enabled=True, weight=0.7))
    varied = plain.again(settings=MemorySettings(query=query))
    assert len({hit.snippet for hit in varied.index.search("redis", limit=2, min_score=None)}) == 2
    plain.close()
    varied.close()


@given(
    query=st.text(max_size=80)
    | st.text("\"'()*:^{}-+ANDORNOTNEAR redis東京\x00\ud800", max_size=40)
)
@pytest.mark.req("O-031")
def test_any_text_is_a_query_fuzz(words: MemoryFile, hybrid: MemoryFile, query: str) -> None:
    for memory in (words, hybrid):
        for hit in memory.search(query):
            assert 0 <= hit.score <= 1.000_001
            assert len(hit.snippet) <= 700
