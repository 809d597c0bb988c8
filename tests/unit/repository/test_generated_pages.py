"""Pages that are generated say what the code says; `make docs` brings them up to date."""

from __future__ import annotations

import pytest

from scripts import cli_page, code_map, coverage_page, lifecycle_page


@pytest.mark.parametrize(
    "page", [cli_page, code_map, coverage_page, lifecycle_page], ids=lambda p: p.__name__
)
def test_the_committed_page_is_current(page: object) -> None:
    committed = page.PAGE.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert committed == page.render(), "run `make docs`"  # type: ignore[attr-defined]


def test_every_marked_requirement_exists() -> None:
    known = set(coverage_page.IDS.read_text(encoding="utf-8").split())
    assert set(coverage_page.find_proofs()) - known == set()
