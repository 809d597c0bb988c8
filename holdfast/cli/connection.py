"""Which server the command line talks to, and as whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.location import running_url, stored_token
from holdfast.settings.environment import Settings

if TYPE_CHECKING:
    from holdfast.client.client import Client


def connect(*, timeout_s: float = 60.0) -> Client:
    """A client of HOLDFAST_URL with HOLDFAST_TOKEN, or of the product that is up in the home."""
    from holdfast.client.client import Client

    settings = Settings.load()
    token = settings.token or stored_token(settings.home)
    return Client(server_url(settings), token, timeout_s=timeout_s)


def server_url(settings: Settings) -> str:
    """HOLDFAST_URL, else what run.json says, else the bind address: the API may run alone."""
    return settings.url or running_url(settings.home) or settings.api_url
