"""Which candidates are good enough to be hits."""

from __future__ import annotations

import pytest

from holdfast.domain.memory import MemorySettings
from holdfast.memory.ranking import Candidate
from holdfast.memory.search import Question, _is_wanted


def question(min_score: float | None) -> Question:
    settings = MemorySettings().query
    assert settings.min_score == 0.35
    return Question(["a"], None, 6, min_score, None, None, settings, 0)


@pytest.mark.parametrize(
    ("all_terms", "text", "vector", "score", "wanted"),
    [
        (False, None, None, 0.0, False),
        (False, 0.2, None, 0.06, False),
        (False, 0.2, 0.2, 0.2, False),
        (False, 0.35, None, 0.1, True),
        (False, None, 0.35, 0.2, True),
        (False, None, None, 0.35, True),
        (True, 0.1, None, 0.1, True),
    ],
)
def test_a_candidate_is_good_enough_by_words_by_its_vector_by_both_or_with_every_word(
    all_terms: bool, text: float | None, vector: float | None, score: float, wanted: bool
) -> None:
    found = Candidate("a.md", "memory", 1, 1, "x", 0, all_terms, text, vector, score)
    assert _is_wanted(found, question(None)) is wanted
    assert _is_wanted(found, question(0.06)) is (score >= 0.06)
