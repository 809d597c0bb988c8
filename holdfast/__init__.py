"""Holdfast: sessions of AI agents that survive anything.

`Client` drives a server; nothing is imported before it is asked for, since every part of the
product passes through this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.client import client  # noqa: PLC0415 - see above

    return getattr(client, name)
