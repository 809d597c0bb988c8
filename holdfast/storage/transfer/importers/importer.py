"""What an importer is: it recognises a source, and reads sessions that can store themselves."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NotRequired, Protocol, TypedDict

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
            raise PayloadTooLarge(_too_large(bytes_max))
        return data

    def lines(self, *, bytes_max: int) -> Iterator[bytes]:
        """Line by line, or PayloadTooLarge before the first one."""
        try:
            with self._opened() as file:
                if file.seek(0, os.SEEK_END) > bytes_max:
                    raise PayloadTooLarge(_too_large(bytes_max))
                file.seek(0)
                yield from file
        except OSError as error:
            raise self._unreadable(error) from None

    def _begin(self, count: int) -> bytes:
        try:
            with self._opened() as file:
                return file.read(count)
        except OSError as error:
            raise self._unreadable(error) from None

    def _opened(self) -> BinaryIO:
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        return self.content.open("rb")

    def _unreadable(self, error: OSError) -> NotFound:
        name = self.content.name if isinstance(self.content, Path) else "the body"
        return NotFound(f"cannot read {name}: {error.strerror}")


def _too_large(bytes_max: int) -> str:
    return f"at most {bytes_max // 1024**2} MiB can be imported at once"


class Imported(TypedDict):
    """What became of one session; `imported` is false when it was here already."""

    session_id: str
    imported: bool
    messages: int
    blobs: NotRequired[int]
    sources: NotRequired[list[str]]
    warnings: NotRequired[list[str]]


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
