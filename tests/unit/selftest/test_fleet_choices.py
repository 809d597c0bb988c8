"""What a seed repeats of a fleet's faults, and what the self-test says where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.selftest import report
from holdfast.selftest.fleet import services
from holdfast.selftest.fleet.driver import FleetDriver
from holdfast.selftest.fleet.faults import CUTS, NODES, PARTS, SIGNALS, cut, strike
from holdfast.selftest.fleet.record import FleetRecord
from tests.support.command_line import run_here

NUMBERS = range(200)
URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


def test_a_seed_repeats_the_faults_and_every_kind_has_its_turn() -> None:
    struck = [strike("s1", number) for number in NUMBERS]
    assert struck == [strike("s1", number) for number in NUMBERS]
    assert struck != [strike("s2", number) for number in NUMBERS]
    hit = {(part.rpartition("/")[2], one.number) for one in struck for part in one.parts}
    assert hit == {(kind, number) for kind in PARTS for number in SIGNALS[kind]}
    assert any(len(one.parts) > 1 for one in struck)


def test_a_seed_repeats_the_cuts_between_any_two() -> None:
    made = [cut("s1", number) for number in NUMBERS]
    assert made == [cut("s1", number) for number in NUMBERS]
    assert {one.kind for one in made} == set(CUTS)
    assert {name for one in made for name in one.names} == set(NODES)
    assert {len(set(one.names)) for one in made if one.kind == "cut"} == {2}


def test_every_act_of_a_fleet_has_its_turn_and_asks_either_api() -> None:
    driver = FleetDriver(0, Path(), URLS, "token", FleetRecord(), "s")
    chosen = {driver.choose(number).__name__ for number in range(150)}
    assert chosen == {act.__name__ for act in driver.acts()}
    assert {"move", "run_long", "print_much", "hold_terminal"} <= chosen
    asked = set()
    for _ in range(4):
        assert driver.caller._try("GET", "/hosts", None, {}, None) is None
        asked.add(driver.caller.client.url)
    assert len(asked) == 2
    driver.caller.close()


def test_a_machine_without_postgres_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(services, "DEBIANS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    code, out, err = run_here("selftest", "--fleet", "--seed", "a")
    assert code == 78
    assert "Postgres' programs are missing" in out + err
    assert "apt-get install postgresql" in out + err


def test_the_verdict_of_a_fleet_says_what_it_was_made_of() -> None:
    record = FleetRecord()
    record.kill("cut")
    outcome = report.as_json(record, [], seed="7", minutes=2.0)
    words = report.verdict({**outcome, "fleet": "3 hosts, 2 APIs; namespaces"}, home=None)
    assert "A fleet: 3 hosts, 2 APIs; namespaces." in words
    assert "1 faults (cut 1)" in words
    assert "holdfast selftest --fleet --seed 7" in words
