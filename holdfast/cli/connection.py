"""Which server the command line talks to, and as whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.errors import Unreachable
from holdfast.settings.environment import Settings

if TYPE_CHECKING:
    from holdfast.client.client import Client


def connect(*, timeout_s: float = 60.0) -> Client:
    """A client of HOLDFAST_URL with HOLDFAST_TOKEN, or of the product that is up in the home."""
    from holdfast.client.client import Client

    settings = Settings.load()
    return Client(server_url(settings), bearer_token(settings), timeout_s=timeout_s)


def server_url(settings: Settings) -> str:
    """HOLDFAST_URL, else what run.json says, else the bind address."""
    from holdfast.supervisor import run_file

    if settings.url:
        return settings.url
    run = run_file.read(settings.run_file)
    return run.api_url if run and run.api_url else settings.api_url


def bearer_token(settings: Settings) -> str:
    """HOLDFAST_TOKEN, else the token file in the home."""
    if settings.token:
        return settings.token
    try:
        return settings.token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Unreachable(
            f"Client has not been started in {settings.home}: start it with `holdfast up`, "
            "or set HOLDFAST_URL and HOLDFAST_TOKEN"
        ) from error
