"""An operator says what a summary should keep above all; the words stay out of Temporal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from activities.compaction import compactors
from holdfast.agent.conversation import ModelAnswer, Turn
from holdfast.agent.providers import complete
from holdfast.domain.commands import Answer, Command, Compact
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import compactions
from tests.support.blob_files import blob_file
from tests.support.servers.api_server import ApiServer
from tests.support.sessions_double import SessionsDouble
from tests.support.step_runner import StepRunner
from tests.support.stored_rows import blob_row

FOCUS = "the names of the ports"
PROJECT = """
version: 1
project: focused
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: summarize}
"""


class CompactingSessions(SessionsDouble):
    """Sessions that have just been compacted."""

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Note the command and leave a record as its workflow would."""
        assert isinstance(command, Compact)
        self.asked.append((name, command))
        row = Compaction(
            id=command.compaction_id,
            session_id=session.id,
            trigger="operator_manual",
            strategy="summarize",
        )
        await self.store.awrite(lambda db: insert_once(db, Compaction, row.model_dump()))
        return Answer(state="idle", compaction_id=row.id)


@pytest.mark.req("H-044")
@pytest.mark.parametrize("kept", [True, False])
async def test_the_summary_is_asked_for_with_the_focus_while_its_words_are_kept(
    sqlite_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    shop = StepRunner(sqlite_store, tmp_path / "p", PROJECT)
    run = shop.begin("what is the answer?")
    for _ in range(3):
        shop.use_tool(run, "a b c")
    shop.finish(run)
    staged = sqlite_store.blobs.put_json(FOCUS)
    if not kept:
        blob_file(sqlite_store, staged.id).unlink()
    requests: list[str] = []

    async def listen(route: Any, turns: Sequence[Turn], *rest: Any, **more: Any) -> ModelAnswer:
        requests.append(turns[-1].text)
        return await complete(route, turns, *rest, **more)

    monkeypatch.setattr(compactors, "complete", listen)
    done = await shop.compact("operator_manual", focus_id=staged.id)
    record = sqlite_store.read(lambda db: compactions.get(db, shop.session_id, done.compaction_id))
    assert [FOCUS in request for request in requests] == [kept]
    assert not record.fallback_occurred
    assert record.summary


@pytest.mark.req("H-044")
def test_a_focus_travels_as_an_id_that_no_row_keeps(own_api: ApiServer, tmp_path: Path) -> None:
    store = own_api.store
    sessions = CompactingSessions(store)
    assert own_api.services is not None
    own_api.services.commands = sessions
    caller = own_api.operator()
    path = f"/sessions/{caller.session(caller.project(tmp_path / 'work')['id'])['id']}/compact"
    assert caller.http.post(path, json={"focus": FOCUS}).status_code == 200
    assert caller.http.post(path, json={}).status_code == 200
    assert caller.http.post(path, json={"focus": ""}).status_code == 400
    assert caller.http.post(path, json={"focus": "x" * 1001}).status_code == 400
    caller.close()
    focused, plain = (command for _, command in sessions.asked)
    assert isinstance(focused, Compact)
    assert isinstance(plain, Compact)
    assert plain.focus_id is None
    staged = focused.focus_id or ""
    assert store.blobs.read_json(staged) == FOCUS
    assert store.read(lambda db: blob_row(db, staged)) is None
