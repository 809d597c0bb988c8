"""What a memory does when a project file says nothing of it, and what a file may say."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.domain.memory import MemorySettings, QuerySettings
from holdfast.domain.project_file import ProjectFile
from holdfast.memory.chunking import CHARACTERS_PER_TOKEN, chunks_of
from holdfast.memory.ranking import DAY_MS, Candidate, decayed, varied
from holdfast.memory.search import Question

NOW_MS = 1_780_000_000_000
FILE = {"version": 1, "project": "notes"}


@pytest.fixture
def settings() -> MemorySettings:
    """The settings of a project file without the key `memory`."""
    return ProjectFile.model_validate(FILE).remembering


def candidate(path: str, score: float, text: str, mtime_ms: int = NOW_MS) -> Candidate:
    return Candidate(path, "memory", 1, 1, text, mtime_ms, False, None, None, score)


@pytest.mark.req("O-026")
def test_a_chunk_has_400_tokens_and_begins_with_80_of_the_one_before(
    settings: MemorySettings,
) -> None:
    assert (settings.chunks.tokens, settings.chunks.overlap) == (400, 80)
    line = "x" * 39  # 40 characters with its end
    first, second, *_ = chunks_of("\n".join([line] * 100), settings.chunks)
    assert len(first.text) == 400 * CHARACTERS_PER_TOKEN - 1
    assert (first.end_line - second.start_line + 1) * 40 == 80 * CHARACTERS_PER_TOKEN


@pytest.mark.req("O-021")
def test_files_are_watched_and_a_change_settles_for_1500_ms(settings: MemorySettings) -> None:
    assert (settings.sync.watch, settings.sync.watch_debounce_ms) == (True, 1_500)


@pytest.mark.req("O-025")
def test_nothing_is_synced_by_the_clock_unless_it_is_asked_for(settings: MemorySettings) -> None:
    assert settings.sync.interval_minutes == 0


@pytest.mark.req("O-029")
def test_a_session_counts_after_100000_bytes_or_50_messages(settings: MemorySettings) -> None:
    assert (settings.sync.session_bytes, settings.sync.session_messages) == (100_000, 50)


@pytest.mark.req("O-035")
def test_a_session_that_begins_and_a_search_have_the_memory_synced(
    settings: MemorySettings,
) -> None:
    assert (settings.sync.on_session_start, settings.sync.on_search) == (True, True)


@pytest.mark.req("O-031")
def test_the_usual_weights_bounds_and_numbers_of_hits(settings: MemorySettings) -> None:
    query = settings.query
    assert (query.vector_weight, query.text_weight) == (0.7, 0.3)
    assert (query.max_results, query.min_score) == (6, 0.35)
    question = Question(
        terms=[], vector=None, limit=query.max_results, min_score=None, sources=None, model=None,
        settings=query, now_ms=NOW_MS,
    )  # fmt: skip
    assert question.candidates == 6 * 4


@pytest.mark.req("O-031")
@pytest.mark.parametrize(("multiplier", "fine"), [(0, False), (1, True), (20, True), (21, False)])
def test_the_candidate_multiplier_is_1_to_20(multiplier: int, fine: bool) -> None:
    if fine:
        assert QuerySettings(candidate_multiplier=multiplier).candidate_multiplier == multiplier
    else:
        with pytest.raises(ValidationError, match="candidate_multiplier"):
            QuerySettings(candidate_multiplier=multiplier)


@pytest.mark.req("O-036")
def test_a_score_halves_in_30_days_where_decay_is_switched_on(settings: MemorySettings) -> None:
    decay = settings.query.decay
    assert not decay.enabled
    old = candidate("docs/a.md", 0.8, "", NOW_MS - 30 * DAY_MS)
    [aged] = decayed([old], decay.half_life_days, NOW_MS)
    assert aged.score == pytest.approx(0.4)


@pytest.mark.req("O-036")
def test_the_usual_lambda_weighs_relevance_07_and_difference_03(settings: MemorySettings) -> None:
    mmr = settings.query.mmr
    assert (mmr.enabled, mmr.weight) == (False, 0.7)
    # The second repeats the first: 0.7 * 0.89 - 0.3 * 1 = 0.323.
    first, again = candidate("a.md", 0.9, "one two"), candidate("b.md", 0.89, "one two")
    for score, chosen in ((0.47, "c.md"), (0.45, "b.md")):  # 0.329 and 0.315
        other = candidate("c.md", score, "three")
        assert varied([first, again, other], mmr.weight, 2)[1].path == chosen


@pytest.mark.req("O-001", "O-015")
def test_a_memory_is_on_and_keeps_50000_embeddings(settings: MemorySettings) -> None:
    assert (settings.enabled, settings.sources, settings.vectors) == (True, ["memory"], True)
    assert settings.cache_entries == 50_000
