"""Claims of calls: one start for each, whoever asks, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import executions
from holdfast.storage.hosts.executions import Claim, Verdict

HOST, OTHER = "host-a", "host-b"


def claim(store: OpenStore, call_id: str, host_id: str = HOST, epoch: int = 1) -> Claim:
    def ask(db: Db) -> Claim:
        return executions.claim(db, call_id, "session", host_id, epoch)

    return store.write(ask)


def test_only_the_first_claim_may_start(either_store: OpenStore) -> None:
    call = new_id()
    assert claim(either_store, call).verdict is Verdict.START
    assert claim(either_store, call).verdict is Verdict.ATTACH
    assert claim(either_store, call, OTHER).verdict is Verdict.ELSEWHERE
    assert claim(either_store, new_id()).verdict is Verdict.START


def test_a_later_epoch_never_starts_what_an_earlier_one_was_told(either_store: OpenStore) -> None:
    call = new_id()
    claim(either_store, call)
    for _ in range(2):
        later = claim(either_store, call, epoch=2)
        assert (later.verdict, later.epoch) == (Verdict.RESTARTED, 1)
    assert claim(either_store, call, OTHER).verdict is Verdict.LOST


def test_a_claim_that_is_given_back_may_be_made_again(either_store: OpenStore) -> None:
    call = new_id()
    claim(either_store, call)
    either_store.write(partial(executions.release, call_id=call))
    assert claim(either_store, call, epoch=2).verdict is Verdict.START


def test_a_settled_claim_cannot_be_lost_any_more(either_store: OpenStore) -> None:
    call = new_id()
    claim(either_store, call)
    either_store.write(partial(executions.settle, call_id=call))
    assert not either_store.write(partial(executions.lose, call_id=call))
    found = either_store.read(partial(executions.find, call_id=call))
    assert found is not None
    assert found.state == "done"


def test_many_claims_at_once_give_one_start_for_each_call(postgres_store: OpenStore) -> None:
    calls = [new_id() for _ in range(25)]
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(claim, postgres_store, call) for call in calls for _ in range(8)]
        verdicts = [one.result().verdict for one in asked]
    assert verdicts.count(Verdict.START) == len(calls)
    assert verdicts.count(Verdict.ATTACH) == 7 * len(calls)
