"""Which paths are the product's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.folders.hidden import as_variable, is_hidden, of_variable

HOME = Path("/data/holdfast")
CHAT = HOME / "chats" / "alice" / "one"


@pytest.mark.parametrize("path", [HOME, HOME / "token", HOME / "chats", CHAT])
def test_the_home_and_all_in_it_is_hidden(path: Path) -> None:
    assert is_hidden(path, [HOME])


@pytest.mark.parametrize("path", ["/data", "/data/holdfast-2", "/"])
def test_what_is_beside_or_around_it_is_not(path: str) -> None:
    assert not is_hidden(Path(path), [HOME])


def test_a_session_that_was_given_a_folder_in_the_home_sees_only_that() -> None:
    assert not is_hidden(CHAT, [HOME], given=CHAT)
    assert not is_hidden(CHAT / "notes", [HOME], given=CHAT)
    for other in (HOME, HOME / "token", CHAT.parent, CHAT.parent / "two"):
        assert is_hidden(other, [HOME], given=CHAT)


@pytest.mark.parametrize("given", ["/", "/data", HOME])
def test_a_session_around_the_home_or_in_it_sees_nothing_of_it(given: Path | str) -> None:
    assert is_hidden(HOME / "token", [HOME], given=Path(given))


def test_the_places_survive_the_environment() -> None:
    places = [HOME, Path("/srv/db.sqlite")]
    assert list(of_variable(as_variable(places))) == places
    assert list(of_variable(None)) == []
