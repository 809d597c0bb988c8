"""Titles, aliases, the resolver and lineage, on both databases."""

from __future__ import annotations

import pytest

from domain.errors import Conflict, NotFound, ValidationFailed
from storage import aliases, sessions, titles
from storage.engine import Db
from storage.lineage import lineage
from storage.resolver import resolve
from storage.rows import change
from storage.tables import SessionRow
from tests.support.library import Shelf


def set_title(shelf: Shelf, session: str, title: str | None) -> None:
    shelf.store.write(lambda db: titles.set_title(db, session, title))


def title_of(shelf: Shelf, session: str) -> str | None:
    return shelf.store.read(lambda db: sessions.get(db, session).title)


@pytest.mark.req("H-007", "H-028")
def test_a_title_is_unique_per_operator(shelf: Shelf) -> None:
    one, two = shelf.session(), shelf.session()
    set_title(shelf, one, "  Plans \n for today ")
    assert title_of(shelf, one) == "Plans for today"
    with pytest.raises(Conflict):
        set_title(shelf, two, "Plans for today")
    set_title(shelf, one, "Plans for today")
    stranger = Shelf(shelf.store, f"not-{shelf.operator_id}")
    set_title(stranger, stranger.session(), "Plans for today")
    set_title(shelf, one, None)
    set_title(shelf, two, "Plans for today")
    for wrong in (" ", "x" * 201):
        with pytest.raises(ValidationFailed):
            set_title(shelf, two, wrong)


@pytest.mark.req("H-030")
def test_the_next_title_counts_on_in_the_lineage(shelf: Shelf) -> None:
    def following(title: str) -> str:
        return shelf.store.read(lambda db: titles.next_title(db, shelf.operator_id, title))

    set_title(shelf, shelf.session(), "Fix 100% of it")
    assert following("Fix 100% of it") == "Fix 100% of it #2"
    set_title(shelf, shelf.session(), "Fix 100% of it #7")
    set_title(shelf, shelf.session(), "Fix 1000 of it #90")
    assert following("Fix 100% of it #7") == "Fix 100% of it #8"


def test_the_first_message_gives_a_title_once_and_never_over_a_users(shelf: Shelf) -> None:
    def auto(session: str) -> str | None:
        return shelf.store.write(lambda db: titles.auto_title(db, session))

    one, two, named, silent = (shelf.session() for _ in range(4))
    for session in (one, two, named):
        shelf.say(session, "Fix the\nparser, please")
    set_title(shelf, named, "Mine")
    assert auto(one) == "Fix the parser, please"
    assert auto(two) == "Fix the parser, please #2"
    assert auto(named) == "Mine"
    assert auto(silent) is None
    shelf.say(silent, "word " * 40)
    long = auto(silent)
    assert long is not None
    assert long.endswith("word…")
    assert len(long) <= titles.AUTO_TITLE_CHARS + 1


@pytest.mark.req("H-007", "H-028", "H-030")
def test_a_title_that_came_by_itself_makes_way_for_a_users(shelf: Shelf) -> None:
    by_itself, second, mine, late = (shelf.session() for _ in range(4))
    for session in (by_itself, second):
        shelf.say(session, "Plan")
        shelf.store.write(lambda db, key=session: titles.auto_title(db, key))  # type: ignore[misc]
    set_title(shelf, mine, "Plan")
    assert [title_of(shelf, key) for key in (by_itself, second, mine)] == [
        "Plan #3",
        "Plan #2",
        "Plan",
    ]
    # Now it is somebody's own word, and holds against the next.
    with pytest.raises(Conflict):
        set_title(shelf, late, "Plan")
    set_title(shelf, late, "Plan #2")
    assert title_of(shelf, second) == "Plan #4"
    # A title that was confirmed counts as given.
    set_title(shelf, second, "Plan #4")
    with pytest.raises(Conflict):
        set_title(shelf, mine, "Plan #4")


@pytest.mark.req("H-029", "F-007")
def test_names_resolve_in_the_fixed_order(shelf: Shelf) -> None:
    first, second, third = (shelf.session() for _ in range(3))
    set_title(shelf, second, "work #2")
    set_title(shelf, third, "work #10")

    def meant(name: str) -> tuple[str, str]:
        found = shelf.store.read(lambda db: resolve(db, shelf.operator_id, name))
        return found.session.id, found.matched_by

    assert meant(first) == (first, "id")
    assert meant(first.lower()) == (first, "id")
    assert meant("work") == (third, "lineage")
    set_title(shelf, first, "work")
    assert meant("work") == (first, "title")
    shelf.store.write(lambda db: aliases.put(db, shelf.operator_id, "work", second))
    assert meant("work") == (second, "alias")
    shelf.store.write(lambda db: aliases.put(db, shelf.operator_id, "work", third))
    assert meant("work") == (third, "alias")
    shelf.store.write(lambda db: aliases.remove(db, shelf.operator_id, "work"))
    assert meant("work") == (first, "title")
    with pytest.raises(NotFound):
        meant("nothing")


def test_a_prefix_must_be_unique_and_ones_own(shelf: Shelf) -> None:
    one = shelf.session(id="01AAAAAAAAAAAAAAAAAAAAAAA1")
    shelf.session(id="01AAAAAAAAAAAAAAAAAAAAAAB2")
    stranger = Shelf(shelf.store, f"not-{shelf.operator_id}")
    theirs = stranger.session(id="01AAAAAAAAAAAAAAAAAAAAAAA9")

    def meant(name: str) -> str:
        return shelf.store.read(lambda db: resolve(db, shelf.operator_id, name)).session.id

    assert meant("01AAAAAAAAAAAAAAAAAAAAAAA") == one
    for name in ("01AAAAAAAA", "01A", theirs):
        with pytest.raises(NotFound):
            meant(name)


@pytest.mark.req("F-007")
def test_aliases_have_rules(shelf: Shelf) -> None:
    session = shelf.session()

    def put(name: str) -> None:
        shelf.store.write(lambda db: aliases.put(db, shelf.operator_id, name, session))

    for wrong in ("", "a/b", "x" * 129, "a\x07b"):
        with pytest.raises(ValidationFailed):
            put(wrong)
    with pytest.raises(NotFound):
        shelf.store.write(lambda db: aliases.remove(db, shelf.operator_id, "absent"))
    shelf.store.write(lambda db: aliases.put(db, shelf.operator_id, "here", session))
    listed = shelf.store.read(lambda db: aliases.of_operator(db, shelf.operator_id))
    assert [(item["name"], item["session_id"]) for item in listed] == [("here", session)]


@pytest.mark.req("H-035")
def test_lineage_walks_up_and_down(shelf: Shelf) -> None:
    root = shelf.session()
    child = shelf.session(parent_session_id=root)
    grandchild = shelf.session(parent_session_id=child)
    cousin = shelf.session(parent_session_id=root)

    def ids(session: str, side: str) -> list[tuple[str, int]]:
        def look(db: Db) -> list[tuple[str, int]]:
            found = lineage(db, sessions.get(db, session))
            return [(item["id"], item["depth"]) for item in found[side]]

        return shelf.store.read(look)

    assert ids(grandchild, "ancestors") == [(child, 1), (root, 2)]
    assert ids(root, "descendants") == [(child, 1), (cousin, 1), (grandchild, 2)]
    assert ids(root, "ancestors") == []
    # A damaged chain must not turn for ever.
    shelf.store.write(lambda db: change(db, SessionRow, root, parent_session_id=grandchild))
    assert {key for key, _ in ids(root, "ancestors")} == {root, child, grandchild}
