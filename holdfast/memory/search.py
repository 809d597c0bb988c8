"""Hits for a query: words and vectors are asked, their scores joined, the best shown (O-031)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.domain.memory import MemoryHit, QuerySettings, Source
from holdfast.memory import schema
from holdfast.memory.connection import Connection, Driver
from holdfast.memory.engines import Scores, VectorEngine
from holdfast.memory.ranking import Candidate, decayed, varied
from holdfast.memory.snippet import snippet_of
from holdfast.memory.words import match_all, match_any

# A hit with only some of the words is worth this much of one that has them all.
PARTIAL = 0.6

MATCHES = "SELECT id, -rank FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT ?"
MATCHES_OF_SOURCES = """SELECT id, -rank FROM chunks_fts WHERE chunks_fts MATCH ?
    AND source IN (SELECT value FROM json_each(?)) ORDER BY rank LIMIT ?"""


@dataclass(frozen=True)
class Question:
    """A query, ready to be answered."""

    terms: list[str]
    vector: Sequence[float] | None
    limit: int
    min_score: float | None  # None: the one of the settings
    sources: Sequence[Source] | None
    model: str | None  # None: chunks of all models (O-034)
    settings: QuerySettings
    now_ms: int

    @property
    def candidates(self) -> int:
        """How many hits each way of searching may suggest."""
        return self.limit * self.settings.candidate_multiplier


@dataclass(frozen=True)
class _TextHit:
    strength: float
    all_terms: bool


def search(
    connection: Connection, question: Question, engine: VectorEngine | None
) -> list[MemoryHit]:
    """The best hits, best first."""
    texts = _text_hits(connection, question)
    vectors: Scores = {}
    if question.vector is not None and engine is not None:
        filtered = question.sources is not None
        vectors = engine.nearest(question.vector, question.candidates, filtered=filtered)
        # Whoever was found by words only is near as well, just not among the nearest.
        vectors |= engine.scores(question.vector, [one for one in texts if one not in vectors])
    found = _candidates(connection, question, texts, vectors)
    if question.settings.decay.enabled:
        found = decayed(found, question.settings.decay.half_life_days, question.now_ms)
    found = [one for one in found if _is_wanted(one, question)]
    found.sort(key=lambda one: (-one.score, one.path, one.start_line))
    if question.settings.mmr.enabled:
        found = varied(found, question.settings.mmr.weight, question.limit)
    return [_hit(one, question.terms) for one in found[: question.limit]]


def score_of_strength(strength: float, best: float) -> float:
    """BM25 as a score above 0 and up to 1: its share of the best hit's.

    BM25 alone says nothing: in a small index even the right word weighs next to nothing.
    """
    return 1.0 if best <= 0 else max(0.0, strength / best)


def joined(text: float | None, vector: float | None, settings: QuerySettings) -> float:
    """One score of two, by their weights; a way of searching that was not asked has no say."""
    if vector is None:
        return text or 0.0
    weights = settings.vector_weight + settings.text_weight
    if weights == 0:
        return max(vector, text or 0.0)
    return (settings.vector_weight * vector + settings.text_weight * (text or 0.0)) / weights


def _is_wanted(found: Candidate, question: Question) -> bool:
    """Good enough by words, by its vector, or by both; with every word of the query it always is.

    The weights are for the order. As a bound the joined score would lose what either way of
    searching finds: words alone give 0.3 of it at most, a cosine of 0.45 gives 0.32, and the usual
    bound is 0.35. But who sends a bound with a query means the score that is shown.
    """
    if question.min_score is not None:
        return found.score >= question.min_score
    scores = (found.score, found.text_score or 0.0, found.vector_score or 0.0)
    return found.all_terms or max(scores) >= question.settings.min_score


def _text_hits(connection: Connection, question: Question) -> dict[str, _TextHit]:
    if not question.terms or not schema.has_words(connection):
        return {}
    found: dict[str, _TextHit] = {}
    # All words first: hits that many partial ones would crowd out.
    for match, all_terms in ((match_all, True), (match_any, False)):
        for chunk_id, strength in _matches(connection, match(question.terms), question):
            found.setdefault(chunk_id, _TextHit(strength, all_terms))
        if len(question.terms) == 1:
            break
    return found


def _matches(connection: Connection, match: str, question: Question) -> list[tuple[str, float]]:
    statement, arguments = MATCHES, [match]
    if question.sources is not None:
        # Only then: it makes SQLite read the row of every match, not only of the best.
        statement = MATCHES_OF_SOURCES
        arguments.append(json.dumps(list(question.sources)))
    try:
        return list(connection.execute(statement, (*arguments, question.candidates)))
    except Driver.OperationalError as error:
        if "fts5" not in str(error):
            raise
        # Every query is quoted; should one be read wrongly all the same, it finds nothing.
        return []


def _candidates(
    connection: Connection, question: Question, texts: dict[str, _TextHit], vectors: Scores
) -> list[Candidate]:
    rows = connection.execute(
        "SELECT chunks.id, chunks.path, chunks.source, start_line, end_line, text, model, mtime"
        " FROM chunks LEFT JOIN files ON files.path = chunks.path"
        " WHERE chunks.id IN (SELECT value FROM json_each(?))",
        (json.dumps(list({**texts, **vectors})),),
    ).fetchall()
    best = max((one.strength for one in texts.values()), default=0.0)
    found = []
    for chunk_id, path, source, start_line, end_line, text, model, mtime in rows:
        other_source = question.sources is not None and source not in question.sources
        if other_source or (question.model is not None and model != question.model):
            continue
        text_hit, cosine = texts.get(chunk_id), vectors.get(chunk_id)
        vector_score = None if cosine is None else min(1.0, max(0.0, cosine))
        text_score = None
        if text_hit is not None:
            share = score_of_strength(text_hit.strength, best)
            text_score = share if text_hit.all_terms else share * PARTIAL
        score = joined(text_score, vector_score, question.settings)
        found.append(
            Candidate(
                path=path, source=source, start_line=start_line, end_line=end_line, text=text,
                mtime_ms=mtime or 0, all_terms=text_hit is not None and text_hit.all_terms,
                text_score=text_score, vector_score=vector_score, score=score,
            )
        )  # fmt: skip
    return found


def _hit(found: Candidate, terms: list[str]) -> MemoryHit:
    return MemoryHit(
        path=found.path,
        source=found.source,
        start_line=found.start_line,
        end_line=found.end_line,
        score=round(found.score, 6),
        text_score=_rounded(found.text_score),
        vector_score=_rounded(found.vector_score),
        snippet=snippet_of(found.text, terms),
    )


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 6)
