"""Words: any text is a query, and two characters of a script without spaces find their text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.connection import Connection, Driver
from holdfast.memory.words import TERMS_MAX, indexed, match_all, match_any, terms_of


@pytest.fixture(scope="module")
def words() -> Iterator[Connection]:
    connection = Driver.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    for text in ("Redis is the cache of 東京都庁", "café Ünïcode budget_exceeded", "한국어 문서를"):
        connection.execute("INSERT INTO words (text) VALUES (?)", (indexed(text),))
    yield connection
    connection.close()


def found(words: Connection, query: str) -> int:
    terms = terms_of(query)
    if not terms:
        return 0
    asked = "SELECT count(*) FROM words WHERE words MATCH ?"
    counts = [
        words.execute(asked, (match(terms),)).fetchone()[0] for match in (match_all, match_any)
    ]
    assert counts[0] <= counts[1]
    return int(counts[0])


@pytest.mark.parametrize(
    "query",
    ["redis", "CACHE", "東京", "京都", "都庁", "東京都庁", "庁", "cafe", "CAFÉ", "unicode",
     "budget_exceeded", "exceeded", "한국", "문서", "cache 東京", "redis!?", '"redis" AND'],
)  # fmt: skip
def test_a_query_finds_its_text(words: Connection, query: str) -> None:
    if query == '"redis" AND':
        assert terms_of(query) == ["redis", "AND"]  # operators are words like any other
    else:
        assert found(words, query) == 1


@pytest.mark.parametrize("query", ["", "🎉", "***", "東都", "red", "\x00\ud800", "NOT", "( ) ^"])
def test_a_query_without_an_answer_finds_nothing(words: Connection, query: str) -> None:
    assert found(words, query) == 0


@given(query=st.text(max_size=60) | st.text("\"'()*:^{}-+ ANDORNOTa東\x00", max_size=40))
@pytest.mark.req("O-031")
def test_any_text_is_a_query_fuzz(words: Connection, query: str) -> None:
    found(words, query)


@given(text=st.text(max_size=60))
def test_any_text_can_be_indexed_fuzz(text: str) -> None:
    assert len(indexed(text).split()) >= 0


def test_there_are_never_too_many_terms() -> None:
    assert len(terms_of(" ".join(f"w{n}" for n in range(500)))) == TERMS_MAX


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How do we deploy to the staging server?", ["deploy", "staging", "server"]),
        ("to be or not to be", ["not"]),
        ("where is it", ["where", "is", "it"]),
        ("who is the WHO", ["who", "is", "the"]),
        ("ask IT", ["ask", "IT"]),
    ],
)
def test_the_words_of_a_question_are_not_looked_for(query: str, expected: list[str]) -> None:
    assert terms_of(query) == expected


def test_a_term_is_looked_for_once() -> None:
    assert terms_of("Deploy deploy DEPLOY") == ["Deploy"]


def test_one_character_without_spaces_is_the_beginning_of_a_pair_and_a_pair_is_whole() -> None:
    assert match_all(["京"]) == '"京"*'
    assert match_any(["東京", "a"]) == '"東京" OR "a"'
