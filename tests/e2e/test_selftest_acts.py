"""The self-test from start to verdict without a kill: every act of a client once, then checked."""

from __future__ import annotations

import pytest

from holdfast.selftest import trial
from holdfast.selftest.driver import Driver


def once(driver: Driver) -> None:
    """Every act, in the order of the table, and then no more."""
    for number, act in enumerate(driver.acts()):
        driver.choose(number)
        driver.do(act)
    driver.over.set()


@pytest.mark.timeout(300)
def test_every_act_of_a_client_is_done_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "DRIVERS", 1)
    monkeypatch.setattr(Driver, "run", once)
    said: list[str] = []
    tried = trial.Trial("acts", 0.0, say=said.append)
    outcome, home = tried.run(kills=False)
    assert (outcome["findings"], outcome["verdict"], home) == ([], "passed", None)
    # What depends on no moment; a cancel may come after the end of its run.
    assert {"session", "message", "fork", "terminal", "end"} <= set(outcome["acknowledged"])
    assert outcome["acknowledged"].keys() & {"resume", "rollback"}
    assert outcome["shell_commands"] >= 3
    assert outcome["frames_seen"] > 50
    assert outcome["requests"]["2xx"] > 20
    assert outcome["kills"] == {}
    assert not tried.product.home.exists()
    assert "searching for every acknowledged message" in said
