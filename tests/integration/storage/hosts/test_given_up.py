"""Which processes of a host must end because nobody waits for them any more."""

from __future__ import annotations

from functools import partial

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.hosts import executions, given_up
from holdfast.storage.hosts.given_up import Alive
from tests.support.sample_library import SampleLibrary


def test_lost_calls_and_cancelled_runs_and_sessions_that_are_over_are_given_up(
    either_store: OpenStore,
) -> None:
    lost, claimed, run, terminal = (new_id() for _ in range(4))
    library = SampleLibrary(either_store)
    live, over = library.session(), library.session()

    def prepare(db: Db) -> None:
        change(db, SessionRow, over, state="ended")
        insert_once(db, Run, Run(id=run, session_id=live, state="cancelled").model_dump())
        for call in (lost, claimed):
            executions.claim(db, call, live, "host", 1)
        executions.lose(db, lost)

    either_store.write(prepare)
    alive = [
        Alive(lost, live, None),
        Alive(claimed, live, None),
        Alive("of the run", live, run),
        Alive(terminal, over, None),
        Alive("of another store", "another", "another"),
    ]
    found = either_store.read(partial(given_up.among, alive=alive))
    assert found == [lost, "of the run", terminal]
    assert either_store.read(partial(given_up.among, alive=[])) == []
