"""How full a context is: one measure for the trigger, the record and the next call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.moves import compactions
from tests.support.step_runner import StepRunner

WORDS = "the quick brown fox jumps over the lazy dog and goes home "
PROJECT = """
version: 1
project: measured
primary:
  model: scripted:echo
  tools: {{"*": {{enabled: false}}}}
  compaction: {settings}
"""


def project(**settings: object) -> str:
    return PROJECT.format(settings=json.dumps(settings))


@pytest.mark.req("K-074")
@pytest.mark.parametrize("per_estimate", [0.6, 1.0, 1.7])
async def test_trigger_record_and_next_call_measure_the_context_alike(
    sqlite_store: OpenStore, tmp_path: Path, per_estimate: float
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="summarize"))
    while not (full := shop.context()).too_long:
        shop.say("operator", WORDS * 8)
        # A provider that counts its own way.
        counted = int((shop.context().estimated + 10 * 8) * per_estimate)
        shop.say("primary", WORDS * 6, tokens=counted)

    done = await shop.compact()

    record = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=1))[0]
    usable = record.window_tokens // 2
    assert record.threshold_estimate == pytest.approx(full.tokens / usable, rel=0.01)
    assert record.after_estimate == pytest.approx(shop.context().tokens / usable, rel=0.03)
    assert done.enough
    assert record.after_estimate <= record.window_lower


async def test_a_compaction_that_frees_too_little_says_so(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="drop"))
    shop.say("operator", "small")
    shop.say("primary", "small")
    shop.say("operator", WORDS * 400)

    done = await shop.compact()

    assert done.superseded <= 1
    assert not done.enough


@pytest.mark.req("K-074")
async def test_a_compaction_above_its_lower_mark_is_not_enough_and_waits_for_growth(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    # The tools' descriptions alone are above both marks of so small a window.
    text = project(strategy="drop", upper=0.3, lower=0.2).replace("enabled: false", "enabled: true")
    shop = StepRunner(sqlite_store, tmp_path / "p", text)
    for number in range(8):
        shop.say("operator", f"question {number}: {WORDS * 20}")
        shop.say("primary", WORDS * 20)
    assert shop.context().too_long

    done = await shop.compact()

    left = shop.context()
    assert done.superseded > 0
    assert not done.enough
    assert not left.too_long, "the same context is not compacted again"
    shop.say("operator", WORDS * (1 + left.tokens // 100))
    assert shop.context().tokens > 1.1 * left.tokens
    assert shop.context().too_long


def test_a_report_that_cannot_be_true_gives_way_to_the_estimate(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="drop"))
    shop.say("operator", WORDS * 400)
    shop.say("primary", "answered", tokens=3_500)
    assert shop.context().tokens == 3_500, "a server that counts its own way is believed"
    shop.say("primary", "answered", tokens=18)
    assert shop.context().tokens > 4_000
