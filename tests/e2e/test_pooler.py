"""The product on Postgres behind PgBouncer in transaction mode, without an address past it."""

from __future__ import annotations

from pathlib import Path

import httpx2

from holdfast import Client
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.product import Product


def test_the_product_streams_behind_a_pooler_and_readyz_says_what_slows_it_down(
    pooler: PgBouncer, postgres_url: str, tmp_path: Path
) -> None:
    product = Product(environment={"HOLDFAST_DATABASE_URL": pooler.url(postgres_url)})
    try:
        product.start()
        with Client(product.url, product.token()) as client:
            folder = tmp_path / "project"
            folder.mkdir()
            session = client.create(client.load_project(str(folder))["id"])
            for _ in range(2):
                frames = list(client.ask(session["id"], "run `echo 6*7`"))
                assert "6*7" in "".join(
                    frame.payload["text"] for frame in frames if frame.type == "delta"
                )
        ready = httpx2.get(f"{product.url}/readyz", trust_env=False, timeout=30.0)
        assert ready.status_code == 200
        assert any("HOLDFAST_DATABASE_LISTEN_URL" in words for words in ready.json()["warnings"])
    finally:
        product.close()
