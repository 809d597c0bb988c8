"""Has memories follow their sources: files, sessions, settings and the clock.

Stats instead of notifications, as for project files: most folders have no memory yet and must be
noticed when they get one, and a few stats cost less than watches that are set up again and again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from temporalio.service import RPCError

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Refusal
from holdfast.domain.ids import least_id
from holdfast.domain.memory import MemorySettings
from holdfast.memory.documents import ROOT_FILES, ROOT_FOLDER, files_of
from holdfast.memory.pool import MemoryPool
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.hosts import hosts, memory_indexes
from holdfast.storage.projects import projects
from holdfast.storage.transfer import memory_sessions
from holdfast.temporal.memories import MemoryWorkflows

log = structlog.get_logger()
EVERY_S = 1.0
# While a change settles its files are looked at more often (O-021).
SETTLING_EVERY_S = 0.1
# A look may take a tenth of the time: with many large memories there are fewer looks.
SHARE = 10
SESSIONS_EVERY_S = 5.0
# Reading whole memories is for those of which something is new, and not for all of them at once.
CHECKS_MAX = 20
MINUTE_S = 60.0
OVERLAP_MS = 60_000

Ask = Callable[[str], Awaitable[None]]


async def watch_forever(
    workflows: MemoryWorkflows,
    store: OpenStore,
    pool: MemoryPool,
    host_id: Callable[[], str | None],
    *,
    every_s: float = EVERY_S,
) -> None:
    """Look for as long as the worker lives; whoever is behind gets a sync."""
    watch = MemoryWatch(store, pool, workflows.ask, host_id=host_id)
    while True:
        began = time.monotonic()
        await watch.look()
        await asyncio.sleep(watch.pause_s(time.monotonic() - began, every_s=every_s))


@dataclass
class _Seen:
    """What was seen of one project's memory."""

    dsl_hash: str
    files: object
    sessions: object
    interval_since: float
    sessions_since: float
    changed_at: float | None = None


@dataclass
class _Findings:
    """What a look found: who is behind for certain, and who may be."""

    due: set[str] = field(default_factory=set)
    doubtful: dict[str, bool] = field(default_factory=dict)  # project → whether small deltas count


class MemoryWatch:
    """Remembers what it saw; what is due stays due until Temporal has taken it."""

    def __init__(
        self,
        store: OpenStore,
        pool: MemoryPool,
        ask: Ask,
        *,
        host_id: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._pool = pool
        self._ask = ask
        self._host_id = host_id
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._found = _Findings()
        self._begun: set[str] = set()

    async def look(self) -> None:
        """Look once at every project that remembers."""
        found, sessions = await self._store.aread(_projects_and_new_sessions)
        others = set() if self._store.is_sqlite else await self._store.aread(self._of_others)
        known = {one.id: one for one in found if one.id not in others}
        self._seen = {key: seen for key, seen in self._seen.items() if key in known}
        await asyncio.to_thread(self._look_at_all, known, self._begun_since(sessions))
        await self._tell()

    def _of_others(self, db: Db) -> set[str]:
        """The projects whose memory another machine builds, as long as it is there."""
        mine = self._host_id()
        there = {one.id for one in hosts.everywhere(db) if hosts.state_of(one) != "away"}
        builders = memory_indexes.builders(db).items()
        return {project for project, host in builders if host != mine and host in there}

    def pause_s(self, took_s: float, *, every_s: float = EVERY_S) -> float:
        """How long to wait for the next look after one that took so long."""
        settling = any(seen.changed_at is not None for seen in self._seen.values())
        return max(SETTLING_EVERY_S if settling else every_s, SHARE * took_s)

    def _look_at_all(self, known: dict[str, Project], begun: set[str]) -> None:
        now = self._clock()
        for project in known.values():
            settings = self._settings(project)
            if settings is None:
                self._seen.pop(project.id, None)
                continue
            if "memory" in settings.sources and not Path(project.path).is_dir():
                continue  # perhaps on a disk that is not mounted, or on another worker's machine
            self._look_at(project, settings, now)
            if project.id in begun and settings.sync.on_session_start:
                self._found.doubtful[project.id] = True
        self._check(known)

    def _settings(self, project: Project) -> MemorySettings | None:
        try:
            settings = self._pool.settings_of(project)
        except Refusal:
            return None  # no good file was ever loaded
        return settings if settings.enabled and project.state == "ready" else None

    def _look_at(self, project: Project, settings: MemorySettings, now: float) -> None:
        seen = self._seen.get(project.id)
        if seen is None or seen.dsl_hash != project.dsl_hash:
            self._seen[project.id] = self._first_sight(project, settings, now)
            self._found.doubtful[project.id] = True
            return
        if _watches_files(settings):
            self._look_at_files(project, settings, seen, now)
        if "sessions" in settings.sources and now - seen.sessions_since >= SESSIONS_EVERY_S:
            self._look_at_sessions(project, seen, now)
        minutes = settings.sync.interval_minutes
        if minutes and now - seen.interval_since >= minutes * MINUTE_S:
            seen.interval_since = now
            self._found.due.add(project.id)

    def _first_sight(self, project: Project, settings: MemorySettings, now: float) -> _Seen:
        files = self._files(project, settings) if _watches_files(settings) else None
        sessions = self._sessions(project) if "sessions" in settings.sources else None
        return _Seen(project.dsl_hash, files, sessions, now, now)

    def _look_at_files(
        self, project: Project, settings: MemorySettings, seen: _Seen, now: float
    ) -> None:
        """A change counts when it has been still for the debounce time."""
        files = self._files(project, settings)
        if files != seen.files:
            seen.files, seen.changed_at = files, now
        still = settings.sync.watch_debounce_ms / 1000
        if seen.changed_at is not None and now - seen.changed_at >= still:
            seen.changed_at = None
            self._found.due.add(project.id)

    def _look_at_sessions(self, project: Project, seen: _Seen, now: float) -> None:
        seen.sessions_since = now
        sessions = self._sessions(project)
        if sessions != seen.sessions:
            seen.sessions = sessions
            self._found.doubtful.setdefault(project.id, False)

    def _files(self, project: Project, settings: MemorySettings) -> object:
        folder = Path(project.path)
        if not settings.extra_paths and not any(
            os.path.lexists(f"{project.path}/{name}") for name in (*ROOT_FILES, ROOT_FOLDER)
        ):
            return {}  # as most projects are: a few stats must do
        found = files_of(folder, self._pool.extra_paths(folder, settings)[0])
        return {one.path: one.hash for one in found}

    def _sessions(self, project: Project) -> object:
        listed = self._store.read(lambda db: memory_sessions.listed(db, project))
        return {one.path: one.hash for one in listed}

    def _begun_since(self, found: dict[str, str]) -> set[str]:
        """The projects in which a session began since the last look."""
        fresh = {project_id for one, project_id in found.items() if one not in self._begun}
        self._begun = set(found)
        return fresh

    def _check(self, known: dict[str, Project]) -> None:
        """Find out about some of the doubtful; the others wait for the next look."""
        for project_id in list(self._found.doubtful)[:CHECKS_MAX]:
            everything = self._found.doubtful.pop(project_id)
            if project_id not in known or project_id in self._found.due:
                continue
            try:
                with self._pool.open(known[project_id]) as memory:
                    if memory.is_dirty(patient=not everything):
                        self._found.due.add(project_id)
            except (Refusal, OSError) as error:
                log.warning("memory.not_checked", project=project_id, error=str(error)[:200])

    async def _tell(self) -> None:
        for project_id in sorted(self._found.due):
            try:
                await self._ask(project_id)
            except RPCError as error:
                log.warning("memory.not_asked", project=project_id, reason=error.message[:200])
                return  # Temporal is away: the next look asks
            self._found.due.discard(project_id)


def _projects_and_new_sessions(db: Db) -> tuple[list[Project], dict[str, str]]:
    """Every project, and the sessions of the last minute with theirs, in one transaction.

    Ids of several APIs come a little out of order, so the last minute is looked at again.
    """
    since = least_id(max(0, now_ms() - OVERLAP_MS))
    return projects.everywhere(db), dict(memory_sessions.begun_after(db, since))


def _watches_files(settings: MemorySettings) -> bool:
    return settings.sync.watch and "memory" in settings.sources
