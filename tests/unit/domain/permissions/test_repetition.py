"""The guard against loops: what counts as the same, and when it is too much."""

from __future__ import annotations

import pytest

from holdfast.domain.permissions.repetition import REMEMBERED, fingerprint, repetition


@pytest.mark.parametrize(
    ("recent", "says"),
    [
        ("aaaaa", None),
        ("aaaaaa", "The same call had the same result 6 times"),
        ("baaaaaa", "The same call had the same result 6 times"),
        ("aaabaaa", None),
        ("abababa", None),
        ("abababab", "Two calls took turns 8 times"),
        ("abcabcab", None),
        ("abababba", None),
        ("aabbaabb", None),
    ],
)
def test_six_times_the_same_or_eight_turns_are_too_much(recent: str, says: str | None) -> None:
    found = repetition(list(recent), "shell: make")
    assert (found is None) if says is None else (found or "").startswith(says)
    assert found is None or found.endswith("shell: make")


def test_what_is_remembered_is_bounded_and_enough() -> None:
    assert REMEMBERED == 8


def test_a_fingerprint_is_of_the_call_and_of_its_result_but_not_of_its_duration() -> None:
    base = fingerprint("shell", {"command": "a"}, {"output": "x", "duration_ms": 1})
    assert base == fingerprint("shell", {"command": "a"}, {"duration_ms": 2, "output": "x"})
    others = [
        fingerprint("shell", {"command": "b"}, {"output": "x"}),
        fingerprint("shell", {"command": "a"}, {"output": "y"}),
        fingerprint("grep", {"command": "a"}, {"output": "x"}),
        fingerprint("shell", {"command": "a"}, "x"),
    ]
    assert len({base, *others}) == 5
