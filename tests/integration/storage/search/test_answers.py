"""Search on both databases: what is found, by whom, and how it is shown."""

from __future__ import annotations

import pytest
from sqlalchemy import delete
from sqlmodel import col

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Message, SessionRow, Supersession
from holdfast.storage.database.tables_history import PtyTranscript
from holdfast.storage.search import index as index_module
from holdfast.storage.search import postgres_index, sqlite_index
from holdfast.storage.search.indexer import catch_up, forget
from holdfast.storage.search.indexer import progress as index_progress
from tests.support.sample_library import SampleLibrary

TEXTS = {
    "redis": "Please fix the redis cache; chat-send is broken",
    "postgres": "Postgres and the Cache: getUserById(",
    "tokyo": "東京タワーへ行く",
    "cafe": "un café noir",
}


@pytest.fixture
def ids(library: SampleLibrary) -> dict[str, str]:
    """The messages of TEXTS, by name."""
    session = library.session(source="cli")
    return {name: library.say(session, text).id for name, text in TEXTS.items()}


QUERIES: list[tuple[str, set[str]]] = [
    ("cache", {"redis", "postgres"}),
    ("redis cache", {"redis"}),
    ("(redis OR postgres) AND cache", {"redis", "postgres"}),
    ("cache NOT redis", {"postgres"}),
    ('"redis cache"', {"redis"}),
    ('"cache redis"', set()),
    ("chat-send", {"redis"}),
    ("post*", {"postgres"}),
    ("東京", {"tokyo"}),
    ("タワー", {"tokyo"}),
    ("京", {"tokyo"}),
    ("京東", set()),
    ("cafe", {"cafe"}),
    ("CAFÉ", {"cafe"}),
    ("serBy", {"postgres"}),
    ('"ById("', {"postgres"}),
    ("AND", set()),
    ('"redis', {"redis"}),
    ("%_'\\;--", set()),
    ("ad_s", set()),
]


@pytest.mark.req("H-010", "H-012", "H-031", "H-034")
def test_queries_find_what_they_mean(library: SampleLibrary, ids: dict[str, str]) -> None:
    for query, names in QUERIES:
        assert library.found(query) == {ids[name] for name in names}, query


@pytest.mark.req("H-033")
def test_a_hit_shows_where_it_stands(library: SampleLibrary) -> None:
    session = library.session(source="telegram")
    began = begun_earlier(library, session)
    before = library.say(session, "b" * 300)
    hit = library.say(session, "the needle", "primary", model="stub:one")
    after = library.say(session, "afterwards")
    (item,) = library.search("needle").items
    assert (item["id"], item["session_id"]) == (hit.id, session)
    assert item["role"] == "primary"
    assert item["timestamp"] == hit.created_at
    assert item["snippet"] == "the >>>needle<<<"
    assert [entry["id"] for entry in item["context"]] == [before.id, after.id]
    assert [len(entry["content"]) for entry in item["context"]] == [200, len("afterwards")]
    assert (item["source"], item["model"]) == ("telegram", "stub:one")
    assert item["session_started"] == began
    assert item["score"] > 0


@pytest.mark.req("H-004", "H-032")
def test_filters_narrow_a_search(library: SampleLibrary) -> None:
    first, second = library.session(source="cli"), library.session(source="discord")
    one = library.say(first, "needle one")
    two = library.say(second, "needle two", "primary")
    three = library.say(second, "needle three", "tool", tool_name="shell")
    assert library.found("needle", sources=("cli",)) == {one.id}
    assert library.found("needle", exclude_sources=("cli",)) == {two.id, three.id}
    assert library.found("needle", roles=("primary",)) == {two.id}
    assert library.found("needle", session_id=second) == {two.id, three.id}
    assert library.found("needle", project_id=library.project_id) == {one.id, two.id, three.id}
    assert library.found("needle", project_id="another") == set()
    assert library.found("needle", since=three.created_at + 1) == set()
    assert library.found("needle", until=one.created_at - 1) == set()
    assert library.found("edle", roles=("tool",)) == {three.id}


@pytest.mark.req("K-002")
def test_another_operators_messages_are_never_found(library: SampleLibrary) -> None:
    stranger = SampleLibrary(library.store, f"not-{library.operator_id}")
    mine = library.say(library.session(), "shared words")
    theirs = stranger.say(stranger.session(), "shared words")
    assert library.found("shared") == {mine.id}
    assert stranger.found("shared") == {theirs.id}
    assert stranger.found("hared") == {theirs.id}


@pytest.mark.req("H-010")
def test_tools_and_their_arguments_are_found_and_long_output_is_cut(library: SampleLibrary) -> None:
    session = library.session()
    call = library.say(
        session,
        "",
        "primary",
        tool_calls=[{"id": "c1", "name": "shell", "arguments": {"command": "make zebra"}}],
    )
    output = library.say(session, "x " * 5_000 + "unreached", "tool", tool_name="grep")
    assert library.found("zebra") == {call.id}
    assert library.found("grep") == {output.id}
    assert library.found("unreached") == set()


def test_a_terminals_text_is_found(library: SampleLibrary) -> None:
    session = library.session()
    began = begun_earlier(library, session)
    transcript = PtyTranscript(
        id=new_id(),
        session_id=session,
        pty_id=f"pty-{session}",
        transcript="sha256:0",
        text="$ make lion",
    )
    library.store.write(lambda db: db.add(transcript))
    (item,) = library.search("lion").items
    assert (item["id"], item["role"], item["session_id"]) == (f"pty-{session}", "terminal", session)
    assert item["session_started"] == began
    assert library.found("lion", roles=("operator",)) == set()


def test_a_superseded_message_is_found_and_flagged(library: SampleLibrary) -> None:
    session = library.session()
    message = library.say(session, "withdrawn words")
    cause = Supersession(
        session_id=session, message_id=message.id, cause="rollback", cause_id="c", change=1
    )
    library.store.write(lambda db: db.add(cause))
    (item,) = library.search("withdrawn").items
    assert item["superseded"] is True


def test_sorting_by_time_and_paging(library: SampleLibrary) -> None:
    session = library.session()
    said = [library.say(session, f"needle {'needle ' * n}").id for n in range(5)]
    newest = library.search("needle", sort="recency", limit=2)
    assert [item["id"] for item in newest.items] == [said[4], said[3]]
    assert newest.more
    rest = library.search("needle", sort="recency", limit=10, offset=2)
    assert [item["id"] for item in rest.items] == [said[2], said[1], said[0]]
    assert not rest.more


def test_beyond_the_ranked_many_the_newest_come_first_and_the_answer_says_so(
    library: SampleLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (index_module, sqlite_index, postgres_index):
        monkeypatch.setattr(module, "RANKED_MAX", 3)
    session = library.session()
    said = [library.say(session, "needle").id for _ in range(5)]
    for query in ("needle", "need*"):
        answer = library.search(query, roles=("operator",))
        assert not answer.ranked
        assert [item["id"] for item in answer.items] == said[::-1]
        # The second page begins among the newest and ends beyond them.
        pages = [library.search(query, limit=2, offset=offset).items for offset in (0, 2, 4)]
        assert [item["id"] for page in pages for item in page] == said[::-1]
    assert library.search("need*", roles=("tool",)).items == []
    assert library.search("absent").ranked


@pytest.mark.req("H-011")
def test_a_search_sees_every_committed_message_at_once(library: SampleLibrary) -> None:
    session = library.session()
    for number in range(12):
        message = library.say(session, f"word{number} common")
        assert library.found(f"word{number}") == {message.id}
    assert len(library.found("common")) == 12
    assert index_progress(library.store).behind == 0


@pytest.mark.req("H-011", "F-005")
def test_forgotten_sessions_leave_the_index(library: SampleLibrary) -> None:
    session, other = library.session(), library.session()
    library.say(session, "secret word")
    kept = library.say(other, "secret word")
    catch_up(library.store)
    index = index_module.index_of(library.store)

    def purge(db: Db) -> None:
        forget(db, index, session)
        db.connection().execute(delete(Message).where(col(Message.session_id) == session))

    library.store.write(purge)
    assert library.found("secret") == {kept.id}


def begun_earlier(library: SampleLibrary, session_id: str) -> int:
    """Let the session have begun long before its messages; when that was."""
    began = 1_700_000_000_000
    library.store.write(lambda db: change(db, SessionRow, session_id, created_at=began))
    return began
