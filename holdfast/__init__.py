"""Holdfast: sessions of AI agents that survive anything.

`Client` and `AsyncClient` drive a server. Nothing is imported before it is asked for, since every
process of the product imports this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.async_client import AsyncClient
    from holdfast.client.async_stream import AsyncSessionStream
    from holdfast.client.client import Client
    from holdfast.client.errors import ClientError, Refused, Unreachable
    from holdfast.client.frames import Frame
    from holdfast.client.stream import SessionStream

__all__ = [
    "AsyncClient",
    "AsyncSessionStream",
    "Client",
    "ClientError",
    "Frame",
    "Refused",
    "SessionStream",
    "Unreachable",
]

_MODULES = {
    "AsyncClient": "async_client",
    "AsyncSessionStream": "async_stream",
    "Client": "client",
    "ClientError": "errors",
    "Frame": "frames",
    "Refused": "errors",
    "SessionStream": "stream",
    "Unreachable": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"holdfast.client.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
