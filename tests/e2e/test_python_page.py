"""docs/python.md is true: its blocks run in their order against the product."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Account
from tests.support.servers.product import Product

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_every_block_runs_and_prints_what_the_page_promises(
    product: Product,
    operator: Account,
    make_project: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(product.home))
    monkeypatch.setenv("HOLDFAST_TOKEN", operator.token)
    folder = make_project()["path"]
    names: dict[str, Any] = {}
    printed = []
    for number, block in enumerate(BLOCKS):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            program = block.replace("/path/to/folder", folder)
            exec(compile(program, f"docs/python.md, block {number}", "exec"), names)
        printed.append(out.getvalue())
    names["holdfast"].close()
    connected, listed, asked, streamed, refused, gathered = printed
    assert connected == "idle\n"
    assert listed.startswith("1\n{")
    assert asked == "You said: What is in this folder?done\n"
    assert streamed.split("\n")[:2] == ["Count to four", "You said: Count to four"]
    assert refused == "404 not_found Session not found.\n"
    assert gathered == "['You said: One?', 'You said: Two?']\n"
