"""The diff of one edit: as git writes it, never long, and nothing for what is no text."""

from __future__ import annotations

import pytest

from holdfast.agent.tools import diffs


def test_a_change_and_a_new_file_are_told() -> None:
    assert diffs.unified("a.txt", b"one\ntwo\n", b"one\nthree\n") == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    )
    assert diffs.unified("a.txt", None, b"one") == (
        "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"same\n", b"same\n"),
        (b"\0binary", b"text"),
        (b"", b"x" * (diffs.COMPARED_BYTES_MAX + 1)),
        (b"", b"\n" * (diffs.COMPARED_LINES_MAX + 1)),
    ],
)
def test_what_is_the_same_binary_or_too_large_has_no_diff(before: bytes, after: bytes) -> None:
    assert diffs.unified("a.txt", before, after) == ""


def test_a_long_diff_is_cut_at_a_line() -> None:
    diff = diffs.unified("a.txt", b"", b"words of a line\n" * 9_000)
    assert diff.endswith(f"+words of a line\n{diffs.CUT}")
    assert len(diff.encode()) <= diffs.DIFF_BYTES_MAX
