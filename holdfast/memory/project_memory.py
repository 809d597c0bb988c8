"""One project's memory: its documents from files and sessions, and the index over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.domain.errors import NotFound
from holdfast.domain.memory import Document, MemoryHit, MemorySettings, MemoryStatus, SyncReport
from holdfast.memory import documents
from holdfast.memory.connection import Driver
from holdfast.memory.embedders.choosing import Chosen
from holdfast.memory.index import MemoryIndex
from holdfast.memory.reader import Reader, is_damaged
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.transfer import memory_sessions

Progress = Callable[[int, int], None]
GONE = "the project's folder is not there, so its memory stays as it was"


@dataclass(frozen=True)
class ProjectMemory:
    """What can be done with it. Everything here blocks: call it in a thread."""

    store: OpenStore
    project: Project
    settings: MemorySettings
    index: MemoryIndex
    chosen: Chosen = field(default_factory=Chosen)
    extra_paths: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    is_foreign: bool = False  # another machine builds the index, and sees the files

    @property
    def folder(self) -> Path:
        """Where the project's files are."""
        return Path(self.project.path)

    @property
    def is_here(self) -> bool:
        """Whether the files can be seen: a disk that is not mounted is not an empty memory."""
        return "memory" not in self.settings.sources or self.folder.is_dir()

    def documents(self) -> list[Document]:
        """Everything that should be in the index now."""
        found: list[Document] = []
        if "memory" in self.settings.sources:
            found += documents.files_of(self.folder, self.extra_paths)
        if "sessions" in self.settings.sources:
            found += self.store.read(lambda db: memory_sessions.listed(db, self.project))
        return found

    def read(self, document: Document) -> str:
        """A document's text as it is now."""
        if document.source == "sessions":
            return self.store.read(lambda db: memory_sessions.text(db, document.path))
        return documents.read_file(self.folder, document)

    def is_dirty(self, *, patient: bool = False) -> bool:
        """Whether the index is behind; `patient` overlooks sessions that said little since.

        Of an index that another machine builds it may be: only that one knows.
        """
        if self.is_foreign:
            return self.settings.sync.on_search
        if not self.is_here:
            return False
        found = self.documents()
        if not found and not self.index.path.exists():
            return False
        if not self.index.is_dirty(found):
            return False
        return not patient or self.index.is_dirty(self._overlooking(found))

    def sync(
        self, *, force: bool = False, progress: Progress | None = None, patient: bool = False
    ) -> SyncReport:
        """Bring the index to what the sources are now.

        `patient`: trouble of the embedder that may pass is raised; else another one answers.
        """
        if not self.is_here:
            raise NotFound(GONE)
        if self.chosen.embedder is not None:
            self.chosen.embedder.patient = patient
        return self.index.sync(self.documents(), self.read, force=force, progress=progress)

    def search(self, query: str, *, limit: int | None, min_score: float | None) -> list[MemoryHit]:
        """The chunks that answer best."""
        return self.index.search(query, limit=limit, min_score=min_score)

    def status(self) -> MemoryStatus:
        """What the index holds, and whether that is true."""
        knows = self.is_here and not self.is_foreign
        return self.index.status(self.documents() if knows else None)

    def warnings(self) -> list[str]:
        """What the operator should know about it."""
        gone = [] if self.is_here or self.is_foreign else [GONE]
        return [*gone, *self._another_embedder(), *self.chosen.warnings(), *self.ignored]

    def _another_embedder(self) -> list[str]:
        """A word about an index that was built without the embedder that is wanted."""
        found = self.index.status(None)
        if not self.chosen.made or not found.exists:
            return []
        wanted = self.chosen.made[0]
        if (found.provider, found.model) == (wanted.provider, wanted.model):
            return []
        made, other = f"{found.provider}:{found.model}", f"{wanted.provider}:{wanted.model}"
        return [f"the index was built with {made} instead of {other}"]

    def _overlooking(self, found: list[Document]) -> list[Document]:
        """The documents as the index would have to know them to need no sync yet (O-029)."""
        known = self._known_sessions()
        return self.store.read(
            lambda db: [kept for one in found if (kept := self._as_known(db, one, known))]
        )

    def _known_sessions(self) -> dict[str, str]:
        reader = Reader(self.index.path, vectors=False)
        try:
            with reader.snapshot() as connection:
                if connection is None:
                    return {}
                asked = "SELECT path, hash FROM files WHERE source = 'sessions'"
                return dict(connection.execute(asked).fetchall())
        except Driver.DatabaseError as error:
            if not is_damaged(error):
                raise
            return {}  # and so it is behind: the next synchronisation builds a new one
        finally:
            reader.close()

    def _as_known(self, db: Db, document: Document, known: dict[str, str]) -> Document | None:
        if document.source != "sessions":
            return document
        before = known.get(document.path)
        old_seq, old_change = memory_sessions.unstamp(before or "0.0")
        seq, change = memory_sessions.unstamp(document.hash)
        wanted = self.settings.sync
        if change != old_change or seq - old_seq >= wanted.session_messages:
            return document
        added = memory_sessions.added_bytes(db, document.path, old_seq)
        if added >= wanted.session_bytes:
            return document
        return None if before is None else document.model_copy(update={"hash": before})
