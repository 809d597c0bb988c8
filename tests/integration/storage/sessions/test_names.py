"""Titles, aliases, the resolver and lineage, on both databases."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.sessions import aliases, sessions, titles
from holdfast.storage.sessions.lineage import lineage
from holdfast.storage.sessions.resolver import resolve
from tests.support.sample_library import SampleLibrary


def set_title(library: SampleLibrary, session: str, title: str | None) -> None:
    library.store.write(lambda db: titles.set_title(db, session, title))


def title_of(library: SampleLibrary, session: str) -> str | None:
    return library.store.read(lambda db: sessions.get(db, session).title)


@pytest.mark.req("H-007", "H-028")
def test_a_title_is_unique_per_operator(library: SampleLibrary) -> None:
    one, two = library.session(), library.session()
    set_title(library, one, "  Plans \n for today ")
    assert title_of(library, one) == "Plans for today"
    with pytest.raises(Conflict):
        set_title(library, two, "Plans for today")
    set_title(library, one, "Plans for today")
    stranger = SampleLibrary(library.store, f"not-{library.operator_id}")
    set_title(stranger, stranger.session(), "Plans for today")
    set_title(library, one, None)
    set_title(library, two, "Plans for today")
    for wrong in (" ", "x" * 201):
        with pytest.raises(ValidationFailed):
            set_title(library, two, wrong)


@pytest.mark.req("H-030")
def test_the_next_title_counts_on_in_the_lineage(library: SampleLibrary) -> None:
    def following(title: str) -> str:
        return library.store.read(lambda db: titles.next_title(db, library.operator_id, title))

    set_title(library, library.session(), "Fix 100% of it")
    assert following("Fix 100% of it") == "Fix 100% of it #2"
    set_title(library, library.session(), "Fix 100% of it #7")
    set_title(library, library.session(), "Fix 1000 of it #90")
    assert following("Fix 100% of it #7") == "Fix 100% of it #8"


def test_the_first_message_gives_a_title_once_and_never_over_a_users(
    library: SampleLibrary,
) -> None:
    def auto(session: str) -> str | None:
        return library.store.write(lambda db: titles.auto_title(db, session))

    one, two, named, silent = (library.session() for _ in range(4))
    for session in (one, two, named):
        library.say(session, "Fix the\nparser, please")
    set_title(library, named, "Mine")
    assert auto(one) == "Fix the parser, please"
    assert auto(two) == "Fix the parser, please #2"
    assert auto(named) == "Mine"
    assert auto(silent) is None
    library.say(silent, "word " * 40)
    long = auto(silent)
    assert long is not None
    assert long.endswith("word…")
    assert len(long) <= titles.AUTO_TITLE_CHARS + 1


@pytest.mark.req("H-007", "H-028", "H-030")
def test_a_title_that_came_by_itself_makes_way_for_a_users(library: SampleLibrary) -> None:
    by_itself, second, mine, late = (library.session() for _ in range(4))
    for session in (by_itself, second):
        library.say(session, "Plan")
        library.store.write(lambda db, key=session: titles.auto_title(db, key))  # type: ignore[misc]
    set_title(library, mine, "Plan")
    assert [title_of(library, key) for key in (by_itself, second, mine)] == [
        "Plan #3",
        "Plan #2",
        "Plan",
    ]
    # Now it is somebody's own word, and holds against the next.
    with pytest.raises(Conflict):
        set_title(library, late, "Plan")
    set_title(library, late, "Plan #2")
    assert title_of(library, second) == "Plan #4"
    # A title that was confirmed counts as given.
    set_title(library, second, "Plan #4")
    with pytest.raises(Conflict):
        set_title(library, mine, "Plan #4")


@pytest.mark.req("H-029", "F-007")
def test_names_resolve_in_the_fixed_order(library: SampleLibrary) -> None:
    first, second, third = (library.session() for _ in range(3))
    set_title(library, second, "work #2")
    set_title(library, third, "work #10")

    def meant(name: str) -> tuple[str, str]:
        found = library.store.read(lambda db: resolve(db, library.operator_id, name))
        return found.session.id, found.matched_by

    assert meant(first) == (first, "id")
    assert meant(first.lower()) == (first, "id")
    assert meant("work") == (third, "lineage")
    set_title(library, first, "work")
    assert meant("work") == (third, "lineage")
    assert meant('"work"') == (first, "title")
    assert meant("work #2") == (second, "title")
    library.store.write(lambda db: aliases.put(db, library.operator_id, "work", second))
    assert meant("work") == (second, "alias")
    library.store.write(lambda db: aliases.put(db, library.operator_id, "work", third))
    assert meant("work") == (third, "alias")
    library.store.write(lambda db: aliases.remove(db, library.operator_id, "work"))
    assert meant("work") == (third, "lineage")
    set_title(library, third, None)
    set_title(library, second, None)
    assert meant("work") == (first, "title")
    with pytest.raises(NotFound):
        meant("nothing")


def test_a_prefix_must_be_unique_and_ones_own(library: SampleLibrary) -> None:
    one = library.session(id="01AAAAAAAAAAAAAAAAAAAAAAA1")
    library.session(id="01AAAAAAAAAAAAAAAAAAAAAAB2")
    stranger = SampleLibrary(library.store, f"not-{library.operator_id}")
    theirs = stranger.session(id="01AAAAAAAAAAAAAAAAAAAAAAA9")

    def meant(name: str) -> str:
        return library.store.read(lambda db: resolve(db, library.operator_id, name)).session.id

    assert meant("01AAAAAAAAAAAAAAAAAAAAAAA") == one
    for name in ("01AAAAAAAA", "01A", theirs):
        with pytest.raises(NotFound):
            meant(name)


@pytest.mark.req("F-007")
def test_aliases_have_rules(library: SampleLibrary) -> None:
    session = library.session()

    def put(name: str) -> None:
        library.store.write(lambda db: aliases.put(db, library.operator_id, name, session))

    for wrong in ("", "a/b", "x" * 129, "a\x07b"):
        with pytest.raises(ValidationFailed):
            put(wrong)
    with pytest.raises(NotFound):
        library.store.write(lambda db: aliases.remove(db, library.operator_id, "absent"))
    library.store.write(lambda db: aliases.put(db, library.operator_id, "here", session))
    listed = library.store.read(lambda db: aliases.of_operator(db, library.operator_id))
    assert [(item["name"], item["session_id"]) for item in listed] == [("here", session)]


@pytest.mark.req("H-035")
def test_lineage_walks_up_and_down(library: SampleLibrary) -> None:
    root = library.session()
    child = library.session(parent_session_id=root)
    grandchild = library.session(parent_session_id=child)
    cousin = library.session(parent_session_id=root)

    def ids(session: str, side: str) -> list[tuple[str, int]]:
        def look(db: Db) -> list[tuple[str, int]]:
            found = lineage(db, sessions.get(db, session))
            return [(item["id"], item["depth"]) for item in found[side]]

        return library.store.read(look)

    assert ids(grandchild, "ancestors") == [(child, 1), (root, 2)]
    assert ids(root, "descendants") == [(child, 1), (cousin, 1), (grandchild, 2)]
    assert ids(root, "ancestors") == []
    # A damaged chain must not turn for ever.
    library.store.write(lambda db: change(db, SessionRow, root, parent_session_id=grandchild))
    assert {key for key, _ in ids(root, "ancestors")} == {root, child, grandchild}


def test_an_automatic_title_cuts_a_word_that_has_no_end(library: SampleLibrary) -> None:
    session = library.session()
    library.say(session, "x" * 300)
    library.say(session, "second")
    title = library.store.write(lambda db: titles.auto_title(db, session))
    assert title == "x" * titles.AUTO_TITLE_CHARS + "…"


def test_the_next_title_after_an_underscore_or_percent_is_its_own(library: SampleLibrary) -> None:
    def following(title: str) -> str:
        return library.store.read(lambda db: titles.next_title(db, library.operator_id, title))

    set_title(library, library.session(), "a_b")
    set_title(library, library.session(), "axb #7")
    assert following("a_b") == "a_b #2"
    assert following("axb #7") == "axb #8"
