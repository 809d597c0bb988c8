"""One self-test from start to verdict: start, drive, kill, come to rest, check."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from holdfast.selftest import checker, report
from holdfast.selftest.caller import GaveUp
from holdfast.selftest.driver import Driver
from holdfast.selftest.killer import Killer
from holdfast.selftest.product import NotReady, Product
from holdfast.selftest.record import Finding, Record
from holdfast.storage.database.opening import open_store

DRIVERS = 4
TICK_S = 0.5
SEARCHES_MAX = 2000


class Tortured(Protocol):
    """What is started, tortured, left to come to rest, and stopped."""

    home: Path

    def start(self) -> None:
        """Start it, and keep it started; NotReady when it does not come up."""

    def wait_until_ready(self) -> None:
        """Until it serves; NotReady when it does not."""

    def stop(self) -> int:
        """A clean stop, once; 0 when it was clean."""

    def clear(self, *, keep_home: bool) -> None:
        """End what is left, and remove it unless somebody wants to look."""


P = TypeVar("P", bound=Tortured)
R = TypeVar("R", bound=Record)


class AnyTrial(Generic[P, R]):
    """A product, its clients, and what they noted."""

    def __init__(
        self, seed: str, minutes: float, *, say: Callable[[str], None], record: R, product: P
    ) -> None:
        self.seed = seed
        self.minutes = minutes
        self.say = say
        self.record = record
        self.product = product
        self.drivers: list[Driver] = []

    def run(self, *, kills: bool = True) -> tuple[dict[str, Any], str | None]:
        """The outcome, and the home when it was kept because of findings."""
        findings: list[Finding] = []
        try:
            self.product.start()
            self._torture(kills=kills)
            self._come_to_rest()
            findings = self._check()
        except NotReady as error:
            findings = [*self.record.findings, Finding("not_ready", str(error))]
        finally:
            self.product.stop()
            self.product.clear(keep_home=bool(findings))
        outcome = report.as_json(self.record, findings, seed=self.seed, minutes=self.minutes)
        return outcome, str(self.product.home) if findings else None

    def _torture(self, *, kills: bool) -> None:
        """Drive it for the time that was asked for, with or without faults."""
        raise NotImplementedError

    def _check(self) -> list[Finding]:
        """Stop it, and compare what was acknowledged with what it kept."""
        raise NotImplementedError

    def _wait(self) -> None:
        began, total_s = time.monotonic(), self.minutes * 60
        while (elapsed_s := time.monotonic() - began) < total_s:
            self.say(report.progress(self.record, elapsed_s=elapsed_s, total_s=total_s))
            time.sleep(min(TICK_S, total_s - elapsed_s))

    def _come_to_rest(self) -> None:
        self.say("no more kills: waiting for everything to come to rest")
        self.product.wait_until_ready()
        for driver in self.drivers:
            driver.over.set()
        for driver in self.drivers:
            driver.stop()
            if driver.is_alive():
                self.record.find("no_answer", f"{driver.name} is still waiting")
        try:
            for driver in self.drivers:
                for session_id in driver.known:
                    driver.close_session(session_id)
            self._search()
        except GaveUp as error:
            self.record.find("no_answer", f"no answer for minutes: {error}")
        for driver in self.drivers:
            for watcher in driver.watchers:
                watcher.leave()
            driver.caller.close()

    def _search(self) -> None:
        self.say("searching for every acknowledged message")
        caller = self.drivers[0].caller
        words = [one.word for one in self.record.acknowledged if one.kind == "message"]
        for word in words[-SEARCHES_MAX:]:
            reply = caller.get("/search", q=word)
            if not reply.ok or not reply.body["items"]:
                self.record.find("search_missed", f"{word}: {reply.status}")


class Trial(AnyTrial[Product, Record]):
    """One machine, and its killer."""

    def __init__(self, seed: str, minutes: float, *, say: Callable[[str], None]) -> None:
        record = Record()
        super().__init__(seed, minutes, say=say, record=record, product=Product(record))

    def _torture(self, *, kills: bool) -> None:
        token = self.product.token()
        for number in range(DRIVERS):
            folder = self.product.folder / "projects" / str(number)
            folder.mkdir(parents=True)
            driver = Driver(number, folder, self.product.url, token, self.record, self.seed)
            self.drivers.append(driver)
            driver.start()
        killer = Killer(self.product, self.record, self.seed)
        if kills:
            killer.start()
        self._wait()
        if kills:
            killer.stop()

    def _check(self) -> list[Finding]:
        self.say("checking the store against what was acknowledged")
        code = self.product.stop()
        if code != 0:
            self.record.find("unclean_stop", f"holdfast up ended with exit code {code}")
        store = open_store(None, self.product.home)
        try:
            return checker.check(store, self.record)
        finally:
            store.close()
