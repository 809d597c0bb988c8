"""The page about the consistency check names what the check can find."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.storage.upkeep import consistency, consistency_facts, consistency_heads
from holdfast.storage.upkeep.consistency_facts import FACT_LINKS, FACT_QUERIES
from holdfast.storage.upkeep.consistency_links import LINKS

PAGE = Path(__file__).parents[3] / "docs" / "consistency.md"


def test_every_issue_is_on_the_page_and_no_other() -> None:
    source = "".join(
        Path(str(module.__file__)).read_text(encoding="utf-8")
        for module in (consistency, consistency_facts, consistency_heads)
    )
    named = set(re.findall(r'"((?:blob/|head-|current-|event-|message-)[a-z/-]+[a-z])"', source))
    named |= {link.issue for link in (*LINKS, *FACT_LINKS)} | set(FACT_QUERIES)
    listed = set(
        re.findall(r"`(blob/[a-z-]+|[a-z]+(?:-[a-z]+)+)`", PAGE.read_text(encoding="utf-8"))
    )
    assert listed == named
