"""The order of hits: scores, age, likeness, and which part of a chunk is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.memory import QuerySettings, Source
from holdfast.memory.engines import wanted
from holdfast.memory.ranking import DAY_MS, Candidate, born, decayed, varied
from holdfast.memory.search import joined, score_of_strength
from holdfast.memory.snippet import CHARACTERS_MAX, snippet_of

NOW_MS = 1_780_000_000_000  # 2026-05-28
STRENGTHS = st.floats(min_value=1e-9, max_value=1e3)


def candidate(path: str, score: float, text: str = "", *, mtime_ms: int = NOW_MS) -> Candidate:
    source: Source = "sessions" if path.startswith("sessions/") else "memory"
    return Candidate(path, source, 1, 1, text, mtime_ms, False, None, None, score)


@given(first=STRENGTHS, second=STRENGTHS, third=STRENGTHS)
@pytest.mark.req("O-031")
def test_a_better_rank_never_has_a_lower_score(first: float, second: float, third: float) -> None:
    low, high, best = sorted((first, second, third))
    assert 0 < score_of_strength(low, best) <= score_of_strength(high, best) <= 1


def test_a_best_hit_that_weighs_nothing_is_still_the_best() -> None:
    assert score_of_strength(0.0, 0.0) == 1.0


@pytest.mark.req("O-031")
def test_scores_are_joined_by_their_weights() -> None:
    settings = QuerySettings()
    assert joined(0.5, 0.9, settings) == pytest.approx(0.7 * 0.9 + 0.3 * 0.5)
    assert joined(None, 0.9, settings) == pytest.approx(0.63)
    assert joined(0.5, None, settings) == 0.5  # nobody asked for vectors: words have all the say


def test_weights_need_not_sum_up_to_one() -> None:
    assert joined(1.0, 1.0, QuerySettings(vector_weight=0.2, text_weight=0.2)) == 1.0
    assert joined(0.4, 0.9, QuerySettings(vector_weight=0, text_weight=0)) == 0.9


@pytest.mark.req("O-032")
@pytest.mark.parametrize(
    ("count", "filtered", "expected"),
    [(24, False, 24), (24, True, 240), (1, True, 10), (300, True, 2_000), (5_000, False, 2_000)],
)
def test_under_a_filter_more_neighbours_are_asked_for(
    count: int, filtered: bool, expected: int
) -> None:
    assert wanted(count, filtered=filtered) == expected


@pytest.mark.req("O-036")
@pytest.mark.parametrize(
    ("path", "age_days"),
    [
        ("memory/2026-05-18.md", 10),
        ("memory/diary/2026-05-18-standup.md", 10),
        ("memory/2026-13-45.md", None),
        ("memory/people.md", None),
        ("MEMORY.md", None),
        ("memory.md", None),
        ("docs/guide.md", 3),
        ("sessions/01ABC.md", 3),
    ],
)
def test_a_page_is_as_old_as_its_name_says_and_standing_notes_never_age(
    path: str, age_days: int | None
) -> None:
    found = candidate(path, 1.0)
    midnight = NOW_MS - NOW_MS % DAY_MS
    when = born(path, found.source, midnight - 3 * DAY_MS)
    assert when == (None if age_days is None else midnight - age_days * DAY_MS)


@pytest.mark.req("O-036")
def test_a_score_halves_with_every_half_life() -> None:
    old = candidate("docs/old.md", 0.8, mtime_ms=NOW_MS - 30 * DAY_MS)
    future = candidate("docs/new.md", 0.8, mtime_ms=NOW_MS + DAY_MS)
    evergreen = candidate("MEMORY.md", 0.8, mtime_ms=0)
    scores = [one.score for one in decayed([old, future, evergreen], 30, NOW_MS)]
    assert scores == pytest.approx([0.4, 0.8, 0.8])


@pytest.mark.req("O-036")
def test_a_hit_that_says_the_same_again_makes_way() -> None:
    found = [
        candidate("a.md", 0.90, "deploy with make ship on friday"),
        candidate("b.md", 0.89, "deploy with make ship on friday"),
        candidate("c.md", 0.70, "the database is postgres"),
    ]
    assert [one.path for one in varied(found, 0.7, 2)] == ["a.md", "c.md"]
    assert [one.path for one in varied(found, 1.0, 2)] == ["a.md", "b.md"]
    assert len(varied(found, 0.0, 10)) == 3


@given(text=st.text(max_size=3_000), terms=st.lists(st.text(min_size=1, max_size=5), max_size=5))
def test_a_snippet_is_a_part_of_its_text_and_never_too_long(text: str, terms: list[str]) -> None:
    shown = snippet_of(text, terms)
    assert len(shown) <= CHARACTERS_MAX
    assert shown in text or shown.removeprefix("…").removesuffix("…") in text


def test_a_snippet_shows_where_the_words_are() -> None:
    text = "\n".join(["filler line of no use"] * 60 + ["Redis CAFÉ port 6379"] + ["more"] * 200)
    assert "Redis CAFÉ port 6379" in snippet_of(text, ["redis", "cafe", "6379"])
    assert snippet_of(text, []).startswith("filler line")


def test_a_snippet_prefers_the_place_with_more_of_the_words() -> None:
    text = "redis alone\n" + "filler words\n" * 100 + "redis port 6379\n" + "filler words\n" * 100
    assert "redis port 6379" in snippet_of(text, ["redis", "port", "6379"])


@pytest.mark.parametrize(("apart", "shown"), [(460, "alpha"), (461, "gamma")])
def test_a_snippet_begins_where_words_are_near_enough_to_be_shown_together(
    apart: int, shown: str
) -> None:
    text = "gamma" + " " * 1_995 + "alpha" + " " * (apart - 5) + "beta" + " " * 2_000
    assert shown in snippet_of(text, ["alpha", "beta", "gamma"])


def test_a_snippet_of_the_end_says_only_in_front_that_there_is_more() -> None:
    text = "x " * 500 + "needle"
    shown = snippet_of(text, ["needle"])
    assert shown.startswith("…")
    assert shown.endswith("needle")
