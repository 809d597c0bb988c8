"""Compactions over a real store: every strategy, again and again, and always a valid context."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from activities.compaction.review import Review, approve
from holdfast.agent.conversation import INTERRUPTED, repair
from holdfast.agent.summary import SUMMARY_HEAD
from holdfast.domain.compaction_steps import ReviewStep
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import checkpoints, compactions, rollback
from holdfast.storage.sessions import calls, runs, supersessions
from tests.support.message_format import broken_rules
from tests.support.servers.terminal_hosts import TestHost
from tests.support.step_runner import StepRunner

WORDS = "the quick brown fox jumps over the lazy dog and goes home "
PROJECT = """
version: 1
project: long-work
primary:
  model: scripted:echo
  tools: {{"*": {{enabled: false}}}}
  compaction: {settings}
  subagents:
    scribe: {{model: "scripted:echo", system_prompt: Write like a scribe.}}
"""


def project(**settings: object) -> str:
    return PROJECT.format(settings=json.dumps(settings))


def command(folder: Path, name: str, code: str) -> str:
    """A plugin: a Python program, of the system's as the cage sees it, that reads its stdin."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(f"import json, sys\nquestion = json.load(sys.stdin)\n{code}\n")
    return f"{shutil.which('python3', path='/usr/bin:/usr/local/bin')} {path}"


async def cross_the_threshold(shop: StepRunner, times: int) -> None:
    """Fill the context and compact it, `times` times, and look at it each time."""
    for number in range(times):
        run_id = shop.begin(f"question {number}: {WORDS * 3}")
        shop.use_tool(run_id, WORDS * 15)
        while not (full := shop.context()).too_long:
            shop.use_tool(run_id, WORDS * 15)
        done = await shop.compact(run_id=run_id)
        if done.pending_review:
            run_id = approved(shop)
        context = shop.context()
        assert done.superseded > 0
        assert done.enough
        assert context.tokens < full.tokens
        assert not context.too_long
        turns = repair(context.turns)
        assert broken_rules(turns) == []
        assert not any(turn.text == INTERRUPTED for turn in turns), "a call lost its result"
        assert f"question {number}:" in "".join(turn.text for turn in turns), "the last question"
        shop.finish(run_id)


def approved(shop: StepRunner) -> str:
    """The operator's word on the compaction that waits; the run that goes on."""
    step = ReviewStep(
        session_id=shop.session_id,
        checkpoint_id=shop.state().current_checkpoint or "",
        new_run_id=new_id(),
        user_id=shop.operator_id,
        decision="approve",
    )
    store = shop.store
    reviewed = store.write(lambda db: approve(db, store.blobs, shop.config, step, Review()))
    assert (shop.state().state, reviewed.run_id) == ("running", step.new_run_id)
    return step.new_run_id


@pytest.mark.req("K-071", "K-073", "K-075", "K-082", "K-083", "K-085")
@pytest.mark.parametrize(
    ("strategy", "settings", "times"),
    [
        ("drop", {}, 3),
        pytest.param("drop", {}, 10, marks=pytest.mark.slow),
        ("summarize", {}, 2),
        ("delegate", {"delegate_to": "scribe"}, 2),
        ("checkpoint", {}, 1),
        pytest.param("summarize", {}, 10, marks=pytest.mark.slow),
        pytest.param("delegate", {"delegate_to": "scribe"}, 10, marks=pytest.mark.slow),
        pytest.param("checkpoint", {}, 10, marks=pytest.mark.slow),
    ],
)
async def test_compactions_again_and_again_keep_the_context_valid_and_a_rollback_shows_all(
    sqlite_store: OpenStore, tmp_path: Path, strategy: str, settings: dict[str, object], times: int
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy=strategy, **settings))
    first = shop.begin("before everything")
    shop.finish(first)
    await cross_the_threshold(shop, 2 * times)
    run_id = shop.begin("pause here")
    point = sqlite_store.write(
        lambda db: checkpoints.create(
            db,
            sqlite_store.blobs,
            checkpoint_id=new_id(),
            session_id=shop.session_id,
            created_by="operator",
            prompts={},
            run_id=run_id,
        )
    )
    original = [message.id for message in shop.history()]
    sqlite_store.write(
        lambda db: checkpoints.resume(
            db, sqlite_store.blobs, shop.session_id, point.id, command_id="r"
        )
    )
    shop.finish(run_id)
    await cross_the_threshold(shop, times)

    sqlite_store.write(lambda db: rollback.roll_back(db, shop.session_id, point.id))

    assert [message.id for message in shop.history()] == original
    records = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=100))
    assert len(records) == 3 * times
    assert sum(record.rolled_back for record in records) == times
    assert all(record.strategy == strategy for record in records)
    assert not any(record.fallback_occurred for record in records)
    assert all((record.summary is None) == (strategy == "drop") for record in records)
    assert all((one.summary_message_id is None) == (strategy == "drop") for one in records)


@pytest.mark.req("K-074", "K-077")
async def test_a_summary_stands_first_and_its_record_tells_what_it_saw_and_cost(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="summarize"))
    await cross_the_threshold(shop, 1)

    record = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=1))[0]
    turns = shop.context().turns
    call = sqlite_store.read(lambda db: calls.find(db, record.id))

    assert turns[1].role == "system"
    assert turns[1].text.startswith(SUMMARY_HEAD)
    assert record.threshold_estimate >= 0.85 > 0.6 >= record.after_estimate
    assert (record.window_upper, record.window_lower) == (0.85, 0.6)
    assert record.plugin_cost is not None
    assert record.plugin_cost["provider"] == "scripted"
    assert call is not None
    assert (call.type, call.status) == ("leaf-agent", "done")
    assert record.run_id is not None
    run = sqlite_store.read(lambda db: runs.get(db, record.run_id or ""))
    assert run.steps == 0, "a compaction is no step of the run"


async def test_a_compaction_that_is_repeated_is_made_once(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="summarize"))
    run_id = shop.begin(WORDS)
    for _ in range(12):
        shop.use_tool(run_id, WORDS * 30)
    step = shop.step(run_id=run_id)
    await shop.compaction.compact(step)
    seen = [message.id for message in shop.history()]

    await shop.compaction.compact(step)

    assert [message.id for message in shop.history()] == seen


@pytest.mark.req("K-076", "K-078")
async def test_commands_compact_and_observers_keep_messages_and_add_words(
    sqlite_store: OpenStore, tmp_path: Path, spare_host: TestHost
) -> None:
    plugins = tmp_path / "p" / "plugins"
    keeper = command(
        plugins,
        "keeper",
        "first = question['messages_being_compacted'][0]['id']\n"
        "print(json.dumps({'retain': [first], 'inject': 'remember the milk'}))",
    )
    broken = command(plugins, "broken", "sys.exit(3)")
    writer = command(
        plugins,
        "writer",
        "print(json.dumps({'summary': f\"{len(question['messages_being_compacted'])} gone\"}))",
    )
    text = project(
        strategy="delegate", delegate_to=f"command: {writer}", observers=[keeper, broken]
    )
    shop = StepRunner(sqlite_store, tmp_path / "p", text, host=spare_host)
    run_id = shop.begin("the first of all")
    for _ in range(12):
        shop.use_tool(run_id, WORDS * 30)
    shop.say("operator", "and now?")

    await shop.compact(run_id=run_id)
    await shop.terminals.close()

    record = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=1))[0]
    fired = [(one["role"], one["result_kind"]) for one in record.plugins_fired]
    assert fired == [
        ("observer", "retain"),
        ("observer", "error"),
        ("compactor", "compactor_result"),
    ]
    assert "the first of all" in [message.content for message in shop.history()]
    assert record.summary == f"{len(record.superseded_message_ids)} gone\n\nremember the milk"
    assert record.plugin_cost is None
    assert not record.fallback_occurred


@pytest.mark.req("K-078", "K-087")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import time; time.sleep(60)", "timeout"),
        ("sys.exit(1)", "error"),
        ("print('no json')", "error"),
        ("print('{}')", "error"),
        ("print('x' * 2_000_000)", "error"),
    ],
)
async def test_a_compactor_that_fails_or_takes_too_long_falls_back_to_drop(
    sqlite_store: OpenStore, tmp_path: Path, spare_host: TestHost, code: str, reason: str
) -> None:
    plugin = command(tmp_path / "p" / "plugins", "plugin", code)
    text = project(strategy="delegate", delegate_to=f"command: {plugin}")
    shop = StepRunner(sqlite_store, tmp_path / "p", text, host=spare_host)
    assert shop.compaction.timeout_s == 60.0
    if reason == "timeout":
        shop.compaction.timeout_s = 0.3
    run_id = shop.begin("hello")
    for _ in range(12):
        shop.use_tool(run_id, WORDS * 30)

    done = await shop.compact(run_id=run_id)
    await shop.terminals.close()

    record = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=1))[0]
    assert record.fallback_occurred
    assert (record.fallback_reason or "").startswith(reason)
    assert record.summary_message_id is None
    assert done.superseded > 0
    assert not shop.context().too_long


@pytest.mark.req("K-088")
async def test_an_overflow_makes_room_whatever_our_own_estimate_says(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="drop"))
    run_id = shop.begin("hello")
    for _ in range(8):
        shop.use_tool(run_id, WORDS * 6)
    assert not shop.context().too_long

    done = await shop.compact("provider_overflow_retry", run_id=run_id)

    assert done.superseded > 0
    assert done.enough


@pytest.mark.req("K-072")
async def test_a_scheduled_compaction_with_nothing_to_do_leaves_no_record(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="drop"))
    shop.say("operator", "hello")
    await shop.compact("scheduled")
    assert sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=9)) == []
    manual = await shop.compact("operator_manual")
    assert sqlite_store.read(lambda db: compactions.get(db, shop.session_id, manual.compaction_id))


async def test_pinned_messages_stay(sqlite_store: OpenStore, tmp_path: Path) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="drop"))
    shop.say("operator", "never forget this", pinned=True)
    run_id = shop.begin("hello")
    for _ in range(12):
        shop.use_tool(run_id, WORDS * 30)
    await shop.compact(run_id=run_id)
    assert shop.history()[0].content == "never forget this"


@pytest.mark.req("K-085")
async def test_an_undone_compaction_gives_back_its_messages_newest_first(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", project(strategy="summarize"))
    await cross_the_threshold(shop, 1)
    before = [message.id for message in shop.history()]
    await cross_the_threshold(shop, 1)
    newest, older = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=2))

    with pytest.raises(Conflict):
        sqlite_store.write(lambda db: compactions.undo(db, shop.session_id, older.id))
    sqlite_store.write(lambda db: compactions.undo(db, shop.session_id, newest.id))

    seen = [message.id for message in shop.history()]
    assert set(before) <= set(seen)
    assert newest.summary_message_id not in seen
    assert older.summary_message_id in seen
    sqlite_store.write(lambda db: compactions.undo(db, shop.session_id, older.id))
    assert not any(message.role == "system" for message in shop.history())
    with pytest.raises(Conflict):
        sqlite_store.write(lambda db: compactions.undo(db, shop.session_id, older.id))


@pytest.mark.req("K-086")
def test_at_the_limit_of_records_the_oldest_become_one(
    sqlite_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (compactions.RECORDS_MAX, compactions.COLLAPSED_AT_ONCE) == (1000, 100)
    monkeypatch.setattr(compactions, "RECORDS_MAX", 10)
    monkeypatch.setattr(compactions, "COLLAPSED_AT_ONCE", 4)
    shop = StepRunner(sqlite_store, tmp_path / "p")

    def carry_out(db: Db) -> None:
        for number in range(1, 15):
            record = Compaction(
                id=f"{number:026d}",
                session_id=shop.session_id,
                created_at=number,
                trigger="scheduled",
                strategy="drop",
            )
            compactions.carry_out(db, record, summary=None)

    sqlite_store.write(carry_out)

    records = sqlite_store.read(lambda db: compactions.page(db, shop.session_id, limit=100))
    oldest = records[-1]
    assert len(records) == 8
    assert (oldest.state, oldest.collapsed_count) == ("collapsed", 7)
    assert oldest.summary is not None
    assert oldest.summary.startswith("7 compactions before")


async def test_supersessions_of_a_compaction_name_it(
    either_store: OpenStore, tmp_path: Path
) -> None:
    shop = StepRunner(either_store, tmp_path / "p", project(strategy="drop"))
    await cross_the_threshold(shop, 1)
    record = either_store.read(lambda db: compactions.page(db, shop.session_id, limit=1))[0]
    causes = either_store.read(
        lambda db: supersessions.causes_after(db, shop.session_id, 0, "compaction")
    )
    assert causes == [record.id]
    shown = either_store.read(lambda db: compactions.view(record, compactions.dropped(db, record)))
    assert [one["id"] for one in shown["dropped"]] == record.superseded_message_ids
