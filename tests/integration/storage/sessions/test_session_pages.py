"""Pages of sessions: every filter alone and with others, and what a page says of each session."""

from __future__ import annotations

from typing import Any

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.sessions import leases, session_views, sessions
from holdfast.storage.sessions.session_views import Filter, SessionShown

PROJECT, OTHER = "project-1", "project-2"


def fill(db: Db) -> None:
    """Twelve sessions of two projects, three states and two sources, two of them archived."""
    for project_id, dsl_hash in ((PROJECT, "new"), (OTHER, "old")):
        db.add(
            Project(
                id=project_id, created_by="o", name=project_id, path=project_id, dsl_hash=dsl_hash
            )
        )
    for number in range(12):
        db.add(
            SessionRow(
                id=f"{number:026d}",
                project_id=(PROJECT, OTHER)[number % 2],
                created_by="o",
                working_directory="/tmp",
                dsl_hash="old",
                state=("idle", "running", "queued")[number % 3],
                source=("api", "cli")[number // 6],
                title=f"title {number}",
                archived=number >= 10,
                last_active=1000 + number,
            )
        )


def ids(store: OpenStore, **wanted: Any) -> list[int]:
    """The numbers of the sessions on all pages of three."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        place = cursor

        def page(db: Db, place: str | None = place) -> tuple[list[SessionShown], str | None]:
            return session_views.page(db, Filter("o", **wanted), limit=3, cursor=place)

        items, cursor = store.read(page)
        found += [int(item["id"]) for item in items]
        if cursor is None:
            return found


CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ({"archived": True}, [11, 10]),
    ({"project_id": OTHER}, [9, 7, 5, 3, 1]),
    ({"state": "idle"}, [9, 6, 3, 0]),
    ({"source": "api"}, [5, 4, 3, 2, 1, 0]),
    ({"q": "TITLE 7"}, [7]),
    ({"project_id": PROJECT, "state": "idle", "source": "api"}, [0]),
    ({"project_id": PROJECT, "q": "title", "archived": True}, [10]),
    ({"state": "failed"}, []),
]


def test_filters_may_be_combined(either_store: OpenStore) -> None:
    either_store.write(fill)
    for wanted, expected in CASES:
        assert ids(either_store, **wanted) == expected, wanted


def test_a_page_and_a_single_view_say_the_same_of_a_session(either_store: OpenStore) -> None:
    either_store.write(fill)
    attached = leases.attach_lease(f"{8:026d}")
    either_store.write(lambda db: leases.acquire(db, attached, "me/1", life_ms=60_000))
    items, _ = either_store.read(lambda db: session_views.page(db, Filter("o"), limit=20))
    assert [int(item["id"]) for item in items if item["attached"]] == [8]
    assert {int(item["id"]) for item in items if item["dsl_stale"]} == {0, 2, 4, 6, 8}
    for item in items:
        row = either_store.read(lambda db, key=item["id"]: sessions.get(db, key))  # type: ignore[misc]
        assert either_store.read(lambda db, row=row: session_views.view(db, row)) == item  # type: ignore[misc]
