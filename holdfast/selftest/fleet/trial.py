"""The self-test of a fleet from start to verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.selftest.fleet import checker
from holdfast.selftest.fleet.driver import FleetDriver
from holdfast.selftest.fleet.faults import Faults
from holdfast.selftest.fleet.product import FleetProduct
from holdfast.selftest.fleet.record import FleetRecord
from holdfast.selftest.record import Finding
from holdfast.selftest.trial import DRIVERS, AnyTrial


class FleetTrial(AnyTrial[FleetProduct, FleetRecord]):
    """A fleet, its clients, its faults and what they noted."""

    def __init__(self, seed: str, minutes: float, *, say: Callable[[str], None]) -> None:
        record = FleetRecord()
        super().__init__(seed, minutes, say=say, record=record, product=FleetProduct(record))

    def run(self, *, kills: bool = True) -> tuple[dict[str, Any], str | None]:
        """The outcome, and the folder of the machines when it was kept because of findings."""
        outcome, home = super().run(kills=kills)
        return {**outcome, "fleet": self.product.words}, home

    def _torture(self, *, kills: bool) -> None:
        for number in range(DRIVERS):
            folder = self.product.folder / "projects" / str(number)
            folder.mkdir(parents=True)
            driver = FleetDriver(
                number, folder, self.product.urls, self.product.token(), self.record, self.seed
            )
            self.drivers.append(driver)
            driver.start()
        faults = Faults(self.product, self.record, self.seed)
        if kills:
            faults.start()
        self._wait()
        if kills:
            faults.stop()

    def _check(self) -> list[Finding]:
        self.say("checking the store and the machines against what was acknowledged")
        if self.product.stop() != 0:
            self.record.find("unclean_stop", "a part did not stop when it was asked to")
        store = self.product.open_store()
        try:
            return checker.check(store, self.record, self.product.states)
        finally:
            store.close()
