"""Sends SIGKILL to random parts at random moments."""

from __future__ import annotations

import random
import threading
import time

from cli.supervisor import readiness
from selftest.product import Product
from selftest.record import Record

PARTS = {"api": 4, "worker": 4, "temporal": 3, "terminal": 2, "supervisor": 1}
# Between two kills: most wait until work goes on, some go right into the recovery.
GAPS_S = (0.1, 0.3, 0.8, 1.5, 3.0)
INTO_RECOVERY = 0.35
TOGETHER = 0.2
RECOVERY_S_MAX = 30.0


class Killer(threading.Thread):
    """One thread with a generator of its own, so that a seed repeats its choices."""

    def __init__(self, product: Product, record: Record, seed: str) -> None:
        super().__init__(daemon=True, name="killer")
        self.product = product
        self.record = record
        self.random = random.Random(f"{seed}/killer")
        self._over = threading.Event()

    def run(self) -> None:
        """Kill until told to stop."""
        while not self._over.wait(self.random.choice(GAPS_S) * self.random.uniform(0.5, 1.5)):
            if self.random.random() > INTO_RECOVERY and not self._recovered():
                continue
            for part in self._choice():
                if self.product.kill(part):
                    self.record.kill(part)

    def stop(self) -> None:
        """No more kills."""
        self._over.set()
        self.join(timeout=30)

    def _recovered(self) -> bool:
        deadline = time.monotonic() + RECOVERY_S_MAX
        while not readiness.is_ready(self.product.url):
            if self._over.wait(0.2) or time.monotonic() > deadline:
                return False
        return not self._over.wait(self.random.choice(GAPS_S))

    def _choice(self) -> list[str]:
        count = self.random.randint(2, 4) if self.random.random() < TOGETHER else 1
        names, weights = list(PARTS), list(PARTS.values())
        return list(dict.fromkeys(self.random.choices(names, weights, k=count)))
