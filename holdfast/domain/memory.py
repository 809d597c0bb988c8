"""An agent's memory: what a project may say of it, what its index is asked and answers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["memory", "sessions"]

DEFAULT_LIMIT = 6
MAX_LIMIT = 50
MAX_QUERY_CHARACTERS = 4_000
MAX_FILE_BYTES = 8 * 1024 * 1024


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChunkSettings(_Settings):
    """How a document is cut (O-026)."""

    tokens: int = Field(default=400, ge=32, le=8_000)
    overlap: int = Field(default=80, ge=0, le=4_000)

    @model_validator(mode="after")
    def check_overlap(self) -> ChunkSettings:
        """A chunk that is all overlap would never end."""
        if self.overlap >= self.tokens:
            raise ValueError("memory.chunks.overlap must be less than memory.chunks.tokens")
        return self


class SyncSettings(_Settings):
    """When the index follows its sources (O-021, O-024, O-025, O-029, O-035)."""

    watch: bool = True
    watch_debounce_ms: int = Field(default=1_500, ge=0, le=600_000)
    interval_minutes: int = Field(default=0, ge=0, le=10_080)  # 0: never by the clock
    on_session_start: bool = True
    on_search: bool = True
    session_bytes: int = Field(default=100_000, ge=0)
    session_messages: int = Field(default=50, ge=0)


class MmrSettings(_Settings):
    """Whether hits that repeat each other make way for others (O-036)."""

    enabled: bool = False
    weight: float = Field(default=0.7, ge=0, le=1)  # 1: only relevance, 0: only difference


class DecaySettings(_Settings):
    """Whether what is old counts less; evergreen files never age (O-036)."""

    enabled: bool = False
    half_life_days: float = Field(default=30, gt=0, le=36_500)


class QuerySettings(_Settings):
    """How hits are chosen (O-031)."""

    max_results: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    min_score: float = Field(default=0.35, ge=0, le=1)
    vector_weight: float = Field(default=0.7, ge=0, le=1)
    text_weight: float = Field(default=0.3, ge=0, le=1)
    candidate_multiplier: int = Field(default=4, ge=1, le=20)
    mmr: MmrSettings = Field(default_factory=MmrSettings)
    decay: DecaySettings = Field(default_factory=DecaySettings)


class MemorySettings(_Settings):
    """The key `memory` of a project file."""

    enabled: bool = True
    sources: list[Source] = Field(default=["memory"], min_length=1, max_length=2)
    extra_paths: list[str] = Field(default_factory=list, max_length=32)
    # none, local, or provider:model of config.toml; unset: what config.toml says, else auto.
    embedding: str | None = Field(default=None, max_length=200)
    fallback: str | None = Field(default=None, max_length=200)
    vectors: bool = True  # whether sqlite-vec may be loaded
    cache_entries: int = Field(default=50_000, ge=0, le=10_000_000)
    chunks: ChunkSettings = Field(default_factory=ChunkSettings)
    sync: SyncSettings = Field(default_factory=SyncSettings)
    query: QuerySettings = Field(default_factory=QuerySettings)


class Document(BaseModel):
    """Something to be remembered: a Markdown file, or a session as text."""

    model_config = ConfigDict(frozen=True)

    path: str  # relative to the project, or sessions/<id>.md
    source: Source
    hash: str
    mtime_ms: int
    size: int


class MemoryHit(BaseModel):
    """One chunk that answers a query."""

    path: str
    source: Source
    start_line: int
    end_line: int
    score: float
    text_score: float | None
    vector_score: float | None
    snippet: str


class SyncReport(BaseModel):
    """What one synchronisation did; small numbers only, it travels through Temporal."""

    reindexed: bool = False  # whether the file was built anew and swapped
    reason: str | None = None  # why it was: forced, model, chunks, sources, …
    files: int = 0
    files_changed: int = 0
    files_removed: int = 0
    chunks: int = 0
    chunks_embedded: int = 0
    embeddings_cached: int = 0
    provider: str = "none"
    model: str = "fts-only"
    fell_back: str | None = None  # why another provider than the wanted one answered
    duration_ms: int = 0


class VectorState(BaseModel):
    """How vectors are compared."""

    enabled: bool
    engine: Literal["sqlite-vec", "numpy", "none"]
    dims: int | None
    error: str | None = None


class TextState(BaseModel):
    """Whether words can be searched."""

    available: bool
    error: str | None = None


class MemoryStatus(BaseModel):
    """What the index holds, and how true it is."""

    path: str
    exists: bool
    dirty: bool
    provider: str
    model: str
    sources: list[Source]
    files: int
    chunks: int
    by_source: dict[str, dict[str, int]]
    cache_entries: int
    bytes: int
    generation: int = 0  # how often the file was built anew and swapped
    text: TextState
    vector: VectorState
    last_sync_at: int | None
    last_error: str | None
