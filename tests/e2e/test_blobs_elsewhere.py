"""`HOLDFAST_BLOBS_URL`: every part keeps blobs where it says, or refuses to start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.client.client import Client
from tests.support.servers.product import HOLDFAST, Product


def test_every_part_keeps_its_blobs_at_the_url(tmp_path: Path) -> None:
    elsewhere = tmp_path / "blobs of all"
    product = Product(environment={"HOLDFAST_BLOBS_URL": elsewhere.as_uri()})
    try:
        product.start()
        with Client(product.url, product.token()) as client:
            folder = tmp_path / "project"
            folder.mkdir()
            session = client.create(client.load_project(str(folder))["id"])
            accepted = client.send(session["id"], "hello")
            run = client.wait_for_run(session["id"], accepted["run"]["id"])
            assert run["state"] == "done"
            # The worker wrote the head, and the API reads it.
            (head,) = client.get(f"/sessions/{session['id']}/heads")["items"]
            assert client.get(f"/sessions/{session['id']}/heads/{head['id']}/state")
            stored = client.get("/admin/storage")["blobs"]
        files = [path for path in elsewhere.rglob("*") if path.is_file()]
        assert len(files) == stored["count"] > 0
        assert sum(path.stat().st_size for path in files) == stored["files_bytes"]
        assert not (product.home / "blobs").exists()
    finally:
        product.close()


@pytest.mark.parametrize("part", ["api", "worker"])
def test_a_part_refuses_a_url_that_it_cannot_serve(part: str) -> None:
    product = Product(environment={"HOLDFAST_BLOBS_URL": "gs://bucket/prefix"})
    try:
        answer = subprocess.run(
            [HOLDFAST, part], env=product.environment(), capture_output=True, text=True, check=False
        )
    finally:
        product.close()
    assert answer.returncode == 78
    assert "HOLDFAST_BLOBS_URL must begin with file://, s3://, not with gs" in answer.stderr
