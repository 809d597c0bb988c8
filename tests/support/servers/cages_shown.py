"""What a session says of its cage, in one word: `disabled` by its project file, or `enabled`."""

from __future__ import annotations

from holdfast.domain.cages.shown import DISABLED, CageShown

# A host that nobody asked yet is `unknown`; its programs are caged or refused all the same.
CAGED = {"bubblewrap", "landlock", "unknown"}


def cage_in_force(shown: CageShown) -> str:
    """The word; AssertionError for anything between the two."""
    if shown["kind"] == "none":
        assert (shown["why"], shown["network"]) == (DISABLED, "machine"), shown
        return "disabled"
    assert shown["kind"] in CAGED, shown
    assert shown["network"] == "none", shown
    return "enabled"
