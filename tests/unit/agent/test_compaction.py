"""The compaction plan: what may go, what never goes, and that it makes progress."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.compaction import CompactionPlan, Entry, due, plan, usable, whole_turns
from holdfast.agent.conversation import ToolCall, Turn, repair
from holdfast.agent.summary import MARKER, SUMMARY_HEAD, summary_request, summary_text
from holdfast.agent.tokens import estimate_turns
from tests.support.message_format import broken_rules

SECTIONS = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)


def said(entry_id: str, role: str, tokens: int = 100, **more: object) -> Entry:
    return Entry(id=entry_id, role=role, text=entry_id, tokens=tokens, **more)  # type: ignore[arg-type]


def called(entry_id: str, *call_ids: str) -> Entry:
    calls = tuple(ToolCall(call_id, "shell", {}) for call_id in call_ids)
    return Entry(entry_id, "assistant", "", calls, tokens=100)


def result(entry_id: str, call_id: str) -> Entry:
    return Entry(entry_id, "tool", "ok", tool_call_id=call_id, tokens=100)


def planned(entries: list[Entry], *, window: int = 1000, keep_turns: int = 2) -> CompactionPlan:
    return plan(entries, upper=0.85, lower=0.6, window=window, keep_turns=keep_turns, reserved=0)


def left(entries: list[Entry], made: CompactionPlan) -> list[Entry]:
    return [entry for entry in entries if entry.id not in made.superseded]


def ids(entries: list[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def fullness(entries: list[Entry], made: CompactionPlan) -> float:
    """How full the context is once the plan is carried out, as a fraction."""
    return sum(entry.tokens for entry in left(entries, made)) / made.tokens_usable


@st.composite
def conversations(draw: st.DrawFn) -> list[Entry]:
    entries: list[Entry] = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["user", "answer", "tools", "open", "system", "summary"]))
        pinned = draw(st.sampled_from([False, False, False, True]))
        tokens = draw(st.integers(1, 300))
        name = f"m{number}"
        if kind == "summary":
            entries.append(Entry(name, "user", name, pinned=pinned, tokens=tokens, summary=True))
        elif kind in {"user", "system"}:
            role = "user" if kind == "user" else "system"
            entries.append(said(name, role, tokens, pinned=pinned))
        elif kind == "answer":
            entries.append(said(name, "assistant", tokens, pinned=pinned))
        else:
            entries.append(called(name, f"{name}a", f"{name}b"))
            entries.append(result(f"{name}ra", f"{name}a"))
            if kind == "tools":
                entries.append(result(f"{name}rb", f"{name}b"))
    return entries


@settings(derandomize=True, max_examples=80, deadline=None)
@given(conversations(), st.integers(1, 4), st.booleans())
def test_what_must_stay_stays_and_calls_keep_their_results(
    entries: list[Entry], keep_turns: int, everything: bool
) -> None:
    made = plan(
        entries,
        upper=0.85,
        lower=0.6,
        window=800,
        keep_turns=keep_turns,
        reserved=0,
        everything=everything,
    )
    gone = set(made.superseded)
    assert list(made.superseded) == [entry.id for entry in entries if entry.id in gone]
    answered = {entry.tool_call_id for entry in entries}
    for entry in entries:
        if entry.pinned or (entry.role == "system" and not entry.summary):
            assert entry.id not in gone
        if any(c.id not in answered for c in entry.tool_calls):
            assert entry.id not in gone
    questions = [entry for entry in entries if entry.role == "user" and not entry.summary]
    assert not questions or questions[-1].id not in gone
    owner = {c.id: entry.id for entry in entries for c in entry.tool_calls}
    for entry in entries:
        if entry.tool_call_id:
            assert (entry.id in gone) == (owner[entry.tool_call_id] in gone)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(conversations())
def test_the_context_that_is_left_is_valid_and_smaller(entries: list[Entry]) -> None:
    made = planned(entries, window=600)
    turns = [Turn(e.role, e.text, e.tool_calls, e.tool_call_id) for e in left(entries, made)]
    assert broken_rules(repair(turns)) == []
    assert made.tokens_before == sum(entry.tokens for entry in entries)
    fits = fullness(entries, made) <= made.window_lower
    assert fits or planned(left(entries, made), window=600).superseded == ()


def test_the_oldest_turns_go_until_the_lower_mark_is_reached() -> None:
    entries = [said(f"m{n}", "user" if n % 2 == 0 else "assistant") for n in range(10)]
    made = planned(entries)
    assert made.superseded == ("m0", "m1", "m2", "m3")
    assert (made.threshold_estimate, fullness(entries, made)) == (1.0, 0.6)


def test_a_long_run_on_one_question_can_be_compacted() -> None:
    entries = [said("question", "user")]
    for n in range(10):
        entries += [called(f"step{n}", f"c{n}"), result(f"result{n}", f"c{n}")]
    made = planned(entries)
    assert "question" not in made.superseded
    assert made.superseded[0] == "step0"
    assert fullness(entries, made) <= 0.6


def test_an_old_summary_may_go_into_the_next_one() -> None:
    entries = [said("old", "user", summary=True)]
    entries += [said(f"m{n}", "user" if n % 2 else "assistant") for n in range(8)]
    assert "old" in planned(entries).superseded


def test_what_is_pinned_stays_although_too_little_is_freed() -> None:
    entries = [said("m0", "user", 5000, pinned=True), said("m1", "assistant"), said("m2", "user")]
    made = planned(entries)
    assert made.superseded == ()


def test_pinned_ids_are_kept_like_pinned_entries() -> None:
    entries = [said(f"m{n}", "user" if n % 2 == 0 else "assistant") for n in range(10)]
    made = plan(
        entries, upper=0.85, lower=0.6, window=1000, keep_turns=2, reserved=0, pinned={"m1"}
    )
    assert made.superseded == ("m0", "m2", "m3", "m4")


def test_by_hand_everything_that_may_go_goes() -> None:
    entries = [said(f"m{n}", "user" if n % 2 == 0 else "assistant") for n in range(6)]
    made = plan(entries, upper=0.85, lower=0.6, window=100_000, keep_turns=2, everything=True)
    assert made.superseded == ("m0", "m1", "m2", "m3")


@pytest.mark.req("H-044")
def test_the_newest_turns_are_protected_as_many_as_asked() -> None:
    entries = [said(f"m{n}", "user" if n % 2 == 0 else "assistant") for n in range(30)]
    made = plan(entries, upper=0.85, lower=0.6, window=100, keep_turns=20, everything=True)
    assert ids(left(entries, made)) == [f"m{n}" for n in range(10, 30)]


@pytest.mark.req("H-044")
def test_twenty_turns_stay_by_themselves_where_they_fit_below_the_lower_mark() -> None:
    """The seed protects the last 20; protecting them where they do not fit would end the work."""
    entries = [said(f"m{n}", "user" if n % 2 == 0 else "assistant") for n in range(60)]
    roomy = planned(entries, window=3334)  # of which 2000 are 60 %
    assert ids(left(entries, roomy)) == [f"m{n}" for n in range(40, 60)]
    tight = planned(entries, window=834)
    assert ids(left(entries, tight)) == [f"m{n}" for n in range(55, 60)]
    assert max(fullness(entries, roomy), fullness(entries, tight)) <= 0.6


@pytest.mark.req("K-074")
@pytest.mark.parametrize(("tokens", "expected"), [(849, False), (850, True), (851, True)])
def test_the_upper_mark_itself_triggers(tokens: int, expected: bool) -> None:
    assert due(tokens, upper=0.85, window=1000, reserved=0) is expected


def test_room_for_the_answer_is_kept_free() -> None:
    assert usable(100_000) == 100_000 - 4096
    assert usable(100_000, 1000) == 99_000
    assert usable(4096) == 2048


def test_the_summary_request_has_our_sections_and_fits_the_window() -> None:
    removed = [said("a", "user"), Entry("b", "tool", "log line /var/x.log\n" * 20_000)]
    request = summary_request([*removed, said("why?", "user")], window=8192, focus="the tests")
    assert request[0].text.startswith(MARKER)
    assert all(section in request[0].text for section in SECTIONS)
    assert "why?" in request[1].text
    assert "the tests" in request[1].text
    assert estimate_turns(request) < 8192


def test_a_very_long_part_is_cut_in_the_middle_to_fit() -> None:
    removed = [Entry(f"m{n}", "user", f"message {n} " * 500) for n in range(50)]
    request = summary_request(removed, window=8192)
    assert estimate_turns(request) < 8192
    assert "message 0 " in request[1].text
    assert "message 49 " in request[1].text


def test_the_summary_says_that_it_is_one() -> None:
    assert summary_text("## Goal\nx").startswith(SUMMARY_HEAD)


def test_a_chosen_message_brings_the_rest_of_its_turn() -> None:
    entries = [said("q", "user"), called("step", "a", "b"), result("ra", "a"), result("rb", "b")]
    assert whole_turns(entries, ["rb"]) == ["step", "ra", "rb"]
    assert whole_turns(entries, ["q", "unknown"]) == ["q"]
