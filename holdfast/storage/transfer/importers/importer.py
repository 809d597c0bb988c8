"""What an importer is: it recognises a source, and reads sessions that can store themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict

from holdfast.domain.errors import NotFound, PayloadTooLarge
from holdfast.storage.database.opening import OpenStore

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Source:
    """Where sessions are read from: a file of this machine, or bytes that were sent."""

    content: Path | bytes

    def head(self) -> bytes:
        """The first bytes, by which importers recognise their own."""
        return self._begin(HEAD_BYTES)

    def whole(self, *, bytes_max: int) -> bytes:
        """Everything, or PayloadTooLarge."""
        data = self._begin(bytes_max + 1)
        if len(data) > bytes_max:
            raise PayloadTooLarge(f"at most {bytes_max // 1024**2} MiB can be imported at once")
        return data

    def _begin(self, count: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[:count]
        try:
            with self.content.open("rb") as file:
                return file.read(count)
        except OSError as error:
            raise NotFound(f"cannot read {self.content.name}: {error.strerror}") from None


class Imported(TypedDict):
    """What became of one session; `imported` is false when it was here already."""

    session_id: str
    imported: bool
    messages: int
    blobs: NotRequired[int]
    sources: NotRequired[list[str]]


class Importable(Protocol):
    """A session on its way in."""

    def write(self, store: OpenStore, operator_id: str) -> Imported:
        """Store it for this operator in one transaction, unless it is here. Safe to repeat."""


class Importer(Protocol):
    """One program's way to keep sessions; a module with these two functions is one."""

    def sniff(self, source: Source) -> bool:
        """Whether the source looks like this program's, by its head or its schema."""

    def read(self, source: Source) -> Iterator[Importable]:
        """Its sessions, one in memory at a time where the format allows it."""
