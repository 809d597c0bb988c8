"""Who is believed about where a request comes from: nobody, but the proxies of config.toml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from api.auth import FAILURES_PER_MINUTE
from holdfast.settings.config import parse_config
from holdfast.settings.environment import SettingsError
from holdfast.storage.database.opening import OpenStore
from tests.support.servers.api_server import CONFIG, ApiServer


@pytest.fixture
def proxied_api(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[ApiServer]:
    config = CONFIG + '[server]\ntrusted_proxies = ["127.0.0.0/8", "10.0.0.1"]\n'
    running = ApiServer(sqlite_store, tmp_path / "api-home", config=config).start()
    yield running
    running.stop()


def guess(api: ApiServer, forwarded_for: str, count: int) -> list[int]:
    """The statuses of this many wrong tokens; `{}` in the header is the number of the guess."""
    found = []
    with httpx2.Client(base_url=api.url, trust_env=False, timeout=60.0) as client:
        for number in range(count):
            headers = {
                "Authorization": "Bearer wrong",
                "X-Forwarded-For": forwarded_for.format(number % 250),
            }
            found.append(client.get("/api/v1/sessions", headers=headers).status_code)
    return found


def test_a_client_does_not_escape_the_login_limit_by_naming_other_addresses(
    own_api: ApiServer,
) -> None:
    assert guess(own_api, "198.51.100.{}", FAILURES_PER_MINUTE + 1)[-1] == 429


def test_behind_a_trusted_proxy_the_rightmost_other_address_counts(
    proxied_api: ApiServer,
) -> None:
    # What a client says itself stands on the left of what the proxies add.
    said = "203.0.113.{}, 198.51.100.7, 10.0.0.1"
    assert guess(proxied_api, said, FAILURES_PER_MINUTE + 1)[-1] == 429
    assert guess(proxied_api, "198.51.100.8", 1) == [401]


def test_an_ipv6_client_is_counted_by_its_network(proxied_api: ApiServer) -> None:
    assert guess(proxied_api, "2001:db8:1:2::{}", FAILURES_PER_MINUTE + 1)[-1] == 429
    assert guess(proxied_api, "2001:db8:1:3::1", 1) == [401]


def test_a_proxy_that_is_no_address_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    for wrong in ("*", "proxy.example", "10.0.0.0/40"):
        with pytest.raises(SettingsError, match="neither an address nor a network"):
            parse_config(f'[server]\ntrusted_proxies = ["{wrong}"]'.encode(), tmp_path)
