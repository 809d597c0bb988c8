"""The same queries give the same hits on SQLite, on Postgres and by reading every text."""

from __future__ import annotations

import random

import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.search.matching import Text
from holdfast.storage.search.query import parse
from tests.support.sample_library import SampleLibrary

WORDS = (
    "redis cache deploy deployment chat-send error_code getUserById café naïve Straße v2.1 "
    "東京タワー 京都 東京都 データベース 서울 한국어 привет мир a b to x1 100% foo(bar) :: ->"
)
VOCABULARY = WORDS.split()


def corpus(chance: random.Random, size: int) -> list[str]:
    """Short texts over a small vocabulary, so that queries have hits."""
    return [
        " ".join(chance.choice(VOCABULARY) for _ in range(chance.randint(1, 9)))
        for _ in range(size)
    ]


def make_query(chance: random.Random, depth: int = 0) -> str:
    """Any shape that the language has, and some that it has not."""
    shape = chance.random()
    word = chance.choice(VOCABULARY)
    if depth > 2 or shape < 0.35:
        return word
    if shape < 0.45:
        return word[: chance.randint(1, len(word))] + "*"
    if shape < 0.55:
        return f'"{word} {chance.choice(VOCABULARY)}"'
    if shape < 0.65:
        start = chance.randrange(len(word))
        return word[start : start + 4]
    left, right = make_query(chance, depth + 1), make_query(chance, depth + 1)
    operator = chance.choice((" ", " AND ", " OR ", " NOT ", " AND NOT ", " OR NOT ", '" '))
    return f"({left}{operator}{right})" if shape < 0.85 else f"{left}{operator}{right}"


def expected(texts: dict[str, str], query_text: str) -> set[str]:
    """What reading every text finds."""
    query = parse(query_text)
    if query is None:
        return set()
    read = {key: Text(text) for key, text in texts.items()}
    whole = {key for key, text in read.items() if text.matches(query)}
    return whole or {key for key, text in read.items() if text.matches(query, substrings=True)}


def fill(
    store: OpenStore, texts: list[str]
) -> tuple[SampleLibrary, dict[str, str], dict[str, str]]:
    """The library, each text by its id, and each id's place in the corpus."""
    library = SampleLibrary(store)
    session = library.session()
    ids = [library.say(session, text).id for text in texts]
    places = {key: str(place) for place, key in enumerate(ids)}
    return library, dict(zip(ids, texts, strict=True)), places


def compare(sqlite: OpenStore, postgres: OpenStore, seed: int, size: int, queries: int) -> int:
    """Run the same queries everywhere; how many of them had hits."""
    chance = random.Random(seed)
    texts = corpus(chance, size)
    first, by_id, places = fill(sqlite, texts)
    second, _, other_places = fill(postgres, texts)
    hits = 0
    for _ in range(queries):
        query = make_query(chance)
        truth = {places[key] for key in expected(by_id, query)}
        assert {places[key] for key in first.found(query)} == truth, query
        assert {other_places[key] for key in second.found(query)} == truth, query
        hits += bool(truth)
    return hits


@pytest.mark.req("H-031")
def test_forty_generated_queries_agree(sqlite_store: OpenStore, postgres_store: OpenStore) -> None:
    assert compare(sqlite_store, postgres_store, seed=7, size=50, queries=40) > 20


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.req("H-031")
@pytest.mark.parametrize("seed", [11, 101, 202])
def test_five_hundred_generated_queries_agree(
    sqlite_store: OpenStore, postgres_store: OpenStore, seed: int
) -> None:
    assert compare(sqlite_store, postgres_store, seed=seed, size=150, queries=500) > 250
