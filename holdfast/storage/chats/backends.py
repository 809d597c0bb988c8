"""Which store keeps the sessions of chats: chosen by the name in the settings (T-018)."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

from holdfast.storage.chats.database_store import DatabaseSessionStore
from holdfast.storage.chats.session_store import MemorySessionStore, SessionStore
from holdfast.storage.database.engine import Store

# Makes the store of one operator: operators never see each other's chats.
Backend = Callable[[Store, str], SessionStore]
BACKENDS: dict[str, Backend] = {
    "database": DatabaseSessionStore,
    "memory": lambda _store, _operator_id: MemorySessionStore(),
}


def backend(name: str) -> Backend:
    """The backend of this name, or ValueError; `module:factory` is one of your own."""
    if name in BACKENDS:
        return BACKENDS[name]
    try:
        own: Callable[[str], SessionStore] = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'no such backend "{name}": {error}') from error
    if not callable(own):
        raise ValueError(f'no such backend "{name}": it cannot be called')
    return lambda _store, operator_id: own(operator_id)
