"""The dependency audit: the lock is clean, and each kind of trouble in it is found."""

from __future__ import annotations

import pytest

from scripts import audit

GOOD = "somepackage==1.0 \\\n    --hash=sha256:00\n    # via other\n"


def test_the_committed_lock_has_no_problem() -> None:
    assert audit.problems() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("somepackage==1.0\n", "no hash: somepackage==1.0"),
        ("somepackage>=1.0 \\\n    --hash=sha256:00\n", "not pinned: somepackage>=1.0"),
    ],
)
def test_an_entry_without_version_or_hash_is_found(text: str, words: str) -> None:
    assert audit.unhashed(GOOD) == []
    assert audit.unhashed(GOOD + text) == [f"requirements.lock: {words}"]


def test_an_address_in_the_lock_is_found() -> None:
    assert audit.ELSEWHERE.search(GOOD) is None
    assert audit.ELSEWHERE.search("--index-url somewhere\n" + GOOD)
    assert audit.ELSEWHERE.search(GOOD + "other @ git+ssh://somewhere/other\n")


def test_a_version_with_a_known_hole_is_found() -> None:
    assert audit.known_bad({"h11": {"0.16.0"}}) == []
    assert len(audit.known_bad({"h11": {"0.14.0", "0.16.0"}})) == 1


def test_a_version_for_another_platform_is_looked_at_too() -> None:
    lines = 'h11==0.14.0 ; os_name == "nt" \\\n    --hash=sha256:00\nh11==0.16.0 \\\n'
    assert audit.versions(lines) == {"h11": {"0.14.0", "0.16.0"}}


@pytest.mark.parametrize("licence", ["AGPL-3.0", "GNU General Public License v3", "GPLv3"])
def test_a_licence_that_binds_the_reader_is_found(licence: str) -> None:
    assert audit.STRICT.search(licence)


@pytest.mark.parametrize("licence", ["MIT", "LGPL-3.0-only", "Apache-2.0", "MPL-2.0"])
def test_other_licences_are_fine(licence: str) -> None:
    assert audit.STRICT.search(licence) is None
