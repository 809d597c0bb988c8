"""Sessions brought in as the API brings them in, from a value or a file at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.transfer.importers.importer import Imported, Source
from holdfast.storage.transfer.importers.table import import_from


def import_document(store: OpenStore, operator_id: str, document: Any) -> Imported:
    """One export of ours, by way of its JSON."""
    body = json.dumps(document).encode()
    (done,) = import_from(store, operator_id, "holdfast", Source(body))
    return done


def import_hermes(store: OpenStore, operator_id: str, path: Path) -> list[str]:
    """Every session of a `state.db`, none of which is here yet; their ids."""
    done = import_from(store, operator_id, "hermes", Source(path))
    assert all(one["imported"] for one in done)
    return [one["session_id"] for one in done]
