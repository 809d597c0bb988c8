"""Every importer by its name, and the one way in."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.transfer.importers import hermes, holdfast_export
from holdfast.storage.transfer.importers.importer import Imported, Importer, Source

IMPORTERS: dict[str, Importer] = {
    "holdfast": holdfast_export,
    "hermes": hermes,
}
# Called with how many sessions were looked at so far, and the id of the one that was stored.
Told = Callable[[int, str], None]


def recognise(source: Source) -> str | None:
    """The name of the importer that the source looks made for; None when none knows it."""
    return next((name for name, one in IMPORTERS.items() if one.sniff(source)), None)


def import_from(
    store: OpenStore, operator_id: str, name: str, source: Source, *, told: Told | None = None
) -> list[Imported]:
    """Store every session of the source, a transaction each; what became of them, in order."""
    done: list[Imported] = []
    for session in IMPORTERS[name].read(source):
        done.append(session.write(store, operator_id))
        if told is not None and done[-1]["imported"]:
            told(len(done), done[-1]["session_id"])
    return done
