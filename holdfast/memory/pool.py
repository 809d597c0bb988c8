"""The memories of all projects in this process: opened when asked for, and kept a while.

A handle holds what it read of its file, so opening one for every question would be slow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.errors import Conflict
from holdfast.domain.memory import MemorySettings
from holdfast.memory.embedders.choosing import Chosen, Configured, choose
from holdfast.memory.index import MemoryIndex
from holdfast.memory.project_memory import ProjectMemory
from holdfast.memory.sharing import SharedIndexes
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import projects

OPEN_MAX = 16
# Who waits for an answer gets one by words when the embedder takes longer.
ANSWER_WITHIN_S = 10.0
DISABLED = "the memory of this project is disabled in its project file"


@dataclass
class _Handle:
    """An open index; `users` work with it, and the last one closes what is not kept any more."""

    key: tuple[object, ...]
    index: MemoryIndex
    chosen: Chosen
    users: int = 0
    kept: bool = True

    def close_if_unused(self) -> None:
        """Close it unless somebody works with it or may ask for it again."""
        if self.users == 0 and not self.kept:
            self.index.close()
            self.chosen.close()


class MemoryPool:
    """Gives out `ProjectMemory`s. Safe to use from many threads."""

    def __init__(
        self,
        store: OpenStore,
        home: Path,
        config: Callable[[], Configured],
        *,
        within_s: float | None = None,
        host_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`within_s`: how long who asks waits for an embedder; a sync takes the time it takes.

        `host_id`: the host of this machine, if it is one.
        """
        self.shared = SharedIndexes(store, host_id)
        self._store = store
        self._home = home
        self._config = config
        self._within_s = within_s
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, _Handle] = OrderedDict()

    def settings_of(self, project: Project) -> MemorySettings:
        """What the project's last good file says of its memory."""
        return self._store.read(lambda db: projects.file_in_force(db, project)).remembering

    def path_of(self, project_id: str) -> Path:
        """The file of this project's index."""
        return directory_of(self._home, self._config()) / f"{project_id}.sqlite"

    def share(self, project: Project) -> None:
        """Let other machines have the index as it is now."""
        self.shared.share(project.id, self.path_of(project.id))

    def extra_paths(self, folder: Path, settings: MemorySettings) -> tuple[list[str], list[str]]:
        """Which of the project's extra paths may be read, and a word about each other one."""
        return inside(folder, settings.extra_paths, self._config())

    @contextmanager
    def open(self, project: Project) -> Iterator[ProjectMemory]:
        """The project's memory for as long as the block runs; Conflict when it is disabled."""
        settings, config = self.settings_of(project), self._config()
        if not settings.enabled:
            raise Conflict(DISABLED)
        allowed, ignored = self.extra_paths(Path(project.path), settings)
        newest = self.shared.take(project.id, self.path_of(project.id))
        if newest is not None and newest.note:
            ignored.append(newest.note)
        handle = self._take(project.id, settings, config)
        try:
            yield ProjectMemory(
                store=self._store,
                project=project,
                settings=settings,
                index=handle.index,
                chosen=handle.chosen,
                extra_paths=allowed,
                ignored=ignored,
                is_foreign=self.shared.is_foreign(newest),
            )
        finally:
            self._give_back(handle)

    def close(self) -> None:
        """Close what nobody uses; the rest is closed by who uses it."""
        with self._lock:
            for project_id in list(self._handles):
                self._forget(project_id)

    def _take(self, project_id: str, settings: MemorySettings, config: Configured) -> _Handle:
        path = self.path_of(project_id)
        key = (path, settings, config.memory, dict(config.providers))
        with self._lock:
            handle = self._handles.get(project_id)
            if handle is None or handle.key != key:
                self._forget(project_id)
                chosen = choose(settings, config, within_s=self._within_s)
                index = MemoryIndex(path, settings, chosen.embedder)
                handle = self._handles[project_id] = _Handle(key, index, chosen)
            handle.users += 1
            self._handles.move_to_end(project_id)
            while len(self._handles) > OPEN_MAX:
                self._forget(next(iter(self._handles)))
            return handle

    def _give_back(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            handle.close_if_unused()

    def _forget(self, project_id: str) -> None:
        handle = self._handles.pop(project_id, None)
        if handle is not None:
            handle.kept = False
            handle.close_if_unused()


def directory_of(home: Path, config: Configured) -> Path:
    """The folder of all indexes; a relative one is below the home."""
    return home / Path(config.memory.directory or "memory").expanduser()


def inside(project: Path, paths: list[str], config: Configured) -> tuple[list[str], list[str]]:
    """The extra paths that may be read, and a word about each that may not.

    A project file may come from a stranger: what it names outside of its folder is read only
    where the operator of this machine said so.
    """
    if not paths:
        return [], []
    roots = [project, *(Path(one).expanduser() for one in config.memory.allow_paths)]
    whole = [root.resolve() for root in roots]
    allowed, ignored = [], []
    for path in (one for one in paths if one.strip()):
        try:
            wanted = Path(path).expanduser()
            found = (project / wanted).resolve()
        except (OSError, RuntimeError, ValueError):
            ignored.append(f"extra path {path[:200]!r} is ignored: no such path")
            continue
        if any(found == root or root in found.parents for root in whole):
            allowed.append(str(wanted))
        else:
            words = "leads out of the project; config.toml's [memory] allow_paths does not name it"
            ignored.append(f"extra path {path[:200]!r} is ignored: it {words}")
    return allowed, ignored
