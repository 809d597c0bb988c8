"""The one-time launch URL that the API's start leaves behind for the supervisor to print."""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.settings.environment import Settings


def launch_file(home: Path) -> Path:
    """Where the API's start puts the one-time token; it is read once and removed."""
    return home / "launch"


def launch_url(settings: Settings) -> str | None:
    """The URL that signs a browser in once, or None when there is none."""
    path = launch_file(settings.home)
    token = ""
    with contextlib.suppress(OSError):
        token = path.read_text(encoding="utf-8").strip()
        path.unlink()
    return f"{settings.api_url}/launch?token={token}" if token else None
