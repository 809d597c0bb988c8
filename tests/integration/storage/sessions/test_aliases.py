"""An alias is one operator's own name for one session; a purged session has no name."""

from __future__ import annotations

import pytest

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_library import Alias
from holdfast.storage.sessions import aliases, titles
from holdfast.storage.sessions.resolver import resolve
from tests.support.sample_library import SampleLibrary


def put(library: SampleLibrary, name: str, session: str) -> None:
    library.store.write(lambda db: aliases.put(db, library.operator_id, name, session))


def listed(library: SampleLibrary) -> dict[str, str]:
    found = library.store.read(lambda db: aliases.of_operator(db, library.operator_id))
    return {item["name"]: item["session_id"] for item in found}


def meant(library: SampleLibrary, name: str) -> str:
    return library.store.read(lambda db: resolve(db, library.operator_id, name)).session.id


def stranger_of(library: SampleLibrary) -> SampleLibrary:
    return SampleLibrary(library.store, f"not-{library.operator_id}")


@pytest.mark.req("F-007")
def test_moving_an_alias_moves_no_other(library: SampleLibrary) -> None:
    one, two = library.session(), library.session()
    stranger = stranger_of(library)
    theirs = stranger.session()
    for name in ("here", "there"):
        put(library, name, one)
        put(stranger, name, theirs)
    put(library, "here", two)
    assert listed(library) == {"here": two, "there": one}
    assert listed(stranger) == {"here": theirs, "there": theirs}
    assert meant(library, "here") == two
    assert meant(library, "there") == one
    assert meant(stranger, "here") == theirs


@pytest.mark.req("F-007")
def test_removing_an_alias_removes_no_other(library: SampleLibrary) -> None:
    session = library.session()
    stranger = stranger_of(library)
    put(stranger, "here", stranger.session())
    with pytest.raises(NotFound):
        library.store.write(lambda db: aliases.remove(db, library.operator_id, "here"))
    for name in ("here", "there"):
        put(library, name, session)
    library.store.write(lambda db: aliases.remove(db, library.operator_id, "here"))
    assert listed(library) == {"there": session}
    assert set(listed(stranger)) == {"here"}
    with pytest.raises(NotFound):
        meant(library, "here")


def test_aliases_are_listed_by_name_and_cut_at_the_limit(library: SampleLibrary) -> None:
    session = library.session()
    for name in ("b", "c", "a"):
        put(library, name, session)

    def first(limit: int) -> list[str]:
        found = library.store.read(
            lambda db: aliases.of_operator(db, library.operator_id, limit=limit)
        )
        return [item["name"] for item in found]

    assert first(3) == ["a", "b", "c"]
    assert first(2) == ["a", "b"]


def test_an_alias_may_have_128_characters_and_loses_its_margins(library: SampleLibrary) -> None:
    session = library.session()
    put(library, "x" * aliases.NAME_CHARS_MAX, session)
    put(library, "  two \n words ", session)
    assert listed(library) == {"x" * 128: session, "two words": session}


def test_a_purged_session_is_nowhere_found(library: SampleLibrary) -> None:
    gone = library.session(id=f"01PURGED{library.operator_id[-17:].upper()}1")
    put(library, "here", gone)
    assert meant(library, gone) == meant(library, gone[:-1]) == meant(library, "here") == gone
    library.store.write(lambda db: change(db, SessionRow, gone, purged=True))
    for name in (gone, gone[:-1], "here"):
        with pytest.raises(NotFound):
            meant(library, name)
    # Its id does not make a living one's prefix ambiguous.
    kept = library.session(id=f"{gone[:-1]}2")
    assert meant(library, gone[:-1]) == kept


def test_an_alias_says_what_it_means_and_since_when(library: SampleLibrary) -> None:
    session, begun = library.session(), now_ms()

    def put_at() -> int:
        answer = library.store.write(
            lambda db: aliases.put(db, library.operator_id, " here ", session)
        )
        assert answer == {"name": "here", "session_id": session}
        (item,) = library.store.read(lambda db: aliases.of_operator(db, library.operator_id))
        return int(item["created_at"])

    assert put_at() >= begun
    mine = table(Alias).c.operator_id == library.operator_id
    library.store.write(
        lambda db: db.connection().execute(table(Alias).update().where(mine).values(created_at=1))
    )
    assert put_at() >= begun
    found = library.store.read(lambda db: aliases.find(db, library.operator_id, "absent"))
    assert found is None


def test_a_prefix_has_four_letters_or_digits(library: SampleLibrary) -> None:
    only = library.session(id=f"7S0X{library.operator_id[-22:].upper()}")
    assert meant(library, "7s0x") == only
    for name in ("7S0", "7S%X", "7S_X", "7\u017f0X", ""):
        with pytest.raises(NotFound):
            meant(library, name)


def test_only_double_quotes_make_an_exact_title(library: SampleLibrary) -> None:
    one, two = library.session(), library.session()
    library.store.write(lambda db: titles.set_title(db, one, "a"))
    library.store.write(lambda db: titles.set_title(db, two, "or"))
    assert meant(library, '"a"') == one
    assert meant(library, '"or"') == two
    for name in ("work", "'or'", '"ork', 'wor"', '"'):
        with pytest.raises(NotFound):
            meant(library, name)
