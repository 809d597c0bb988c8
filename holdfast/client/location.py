"""Where the server is and with which token: from the environment, or from the product's home."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_data_path

from holdfast.client.errors import Unreachable


class Location(NamedTuple):
    """A server's address and the token of one of its operators."""

    url: str
    token: str


def find_server() -> Location:
    """HOLDFAST_URL and HOLDFAST_TOKEN; what is not set is read from the files in HOLDFAST_HOME."""
    home = Path(os.environ.get("HOLDFAST_HOME") or user_data_path("holdfast")).expanduser()
    url = os.environ.get("HOLDFAST_URL") or running_url(home)
    if url is None:
        raise _not_started(home)
    return Location(url, os.environ.get("HOLDFAST_TOKEN") or stored_token(home))


def running_url(home: Path) -> str | None:
    """The address in run.json, which is there while the product is up."""
    try:
        url = json.loads((home / "run.json").read_text(encoding="utf-8"))["api_url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) and url else None


def stored_token(home: Path) -> str:
    """The token of the operator `local`, which the first start writes."""
    try:
        return (home / "token").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _not_started(home) from error


def _not_started(home: Path) -> Unreachable:
    return Unreachable(
        f"Holdfast has not been started in {home}: start it with `holdfast up`, "
        "or set HOLDFAST_URL and HOLDFAST_TOKEN"
    )
