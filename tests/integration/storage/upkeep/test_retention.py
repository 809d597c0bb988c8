"""Sessions are archived and pruned by themselves, as config.toml says and no further."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.clock import now_ms
from holdfast.settings.config import Config, Retention
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions, titles
from holdfast.storage.upkeep import retention
from holdfast.storage.upkeep.removal import DAY_MS
from holdfast.storage.upkeep.retention import Rules
from tests.support.sample_library import SampleLibrary
from tests.support.servers.api_server import ApiServer
from worker.retention import keep


def old(library: SampleLibrary, days: int, **columns: object) -> str:
    """A session that was last used so many days ago."""
    at = now_ms() - days * DAY_MS
    session = library.session(**columns)
    values = {"last_active": at, "ended_at": at if columns.get("state") == "ended" else None}
    library.store.write(lambda db: change(db, SessionRow, session, **values))
    return session


def rules(**days: int | bool | None) -> Config:
    """A configuration with these rules."""
    return Config(retention=Retention.model_validate(days))


@pytest.mark.req("H-040")
async def test_only_what_the_rules_name_goes(library: SampleLibrary) -> None:
    store = library.store
    assert isinstance(store, OpenStore)
    unused, ended = old(library, 40), old(library, 100, state="ended")
    kept = {
        "used": old(library, 20),
        "at work": old(library, 40, state="paused"),
        "pinned": old(library, 400, pinned=True),
        "pinned and ended": old(library, 400, state="ended", pinned=True),
    }
    await keep(store, Config())
    assert not store.read(lambda db: sessions.get(db, unused)).archived
    await keep(store, rules(archive_after_days=30, prune_after_days=90))
    assert store.read(lambda db: sessions.find(db, ended)) is None
    assert store.read(lambda db: sessions.get(db, unused)).archived
    (told,) = [
        event
        for event in store.read(lambda db: events.after(db, unused, 0, limit=50))
        if event.kind == "session.archived"
    ]
    assert told.data["reason"] == "retention"
    assert store.read(lambda db: events.broken_link(db, unused)) is None
    for why, session in kept.items():
        row = store.read(lambda db, key=session: sessions.get(db, key))  # type: ignore[misc]
        assert not row.archived, why
    # Others share this store; of this operator's sessions nothing is left to do.
    again = retention.keep(store, Rules(30, 90))
    assert library.operator_id not in again


async def test_a_dry_run_tells_and_changes_nothing(library: SampleLibrary) -> None:
    store = library.store
    assert isinstance(store, OpenStore)
    unused, ended = old(library, 40), old(library, 100, state="ended")
    dry = rules(archive_after_days=30, prune_after_days=90, dry_run=True)
    for _ in range(2):
        await keep(store, dry)
    assert not store.read(lambda db: sessions.get(db, unused)).archived
    told = store.read(lambda db: retention.view(db, library.operator_id, Rules(30, 90)))
    assert [one["id"] for one in told["due"]["prune"]] == [ended]
    assert [one["id"] for one in told["due"]["archive"]] == [unused]
    # The second time had nothing new to say.
    (record,) = told["done"]
    assert (record["dry_run"], record["pruned"], record["archived"]) == (True, [ended], [unused])
    await keep(store, rules(prune_after_days=90))
    done = store.read(lambda db: retention.view(db, library.operator_id, Rules()))["done"]
    assert [(one["dry_run"], one["pruned_count"]) for one in done] == [(False, 1), (True, 1)]


def test_operators_see_what_is_due_of_their_own(own_api: ApiServer, tmp_path: Path) -> None:
    caller, stranger = own_api.operator(), own_api.operator()
    (tmp_path / "api-home" / "config.toml").write_text("[retention]\nprune_after_days = 30\n")
    library = SampleLibrary(own_api.store, caller.id)
    session = old(library, 60, state="ended")
    own_api.store.write(lambda db: titles.set_title(db, session, "Old"))
    shown = caller.http.get("/admin/retention").json()
    assert (shown["prune_after_days"], shown["archive_after_days"]) == (30, None)
    assert shown["due"]["prune"] == [{"id": session, "title": "Old"}]
    assert stranger.http.get("/admin/retention").json()["due"]["prune"] == []
    for one in (caller, stranger):
        one.close()
