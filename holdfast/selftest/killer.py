"""Sends SIGKILL to random parts at random moments."""

from __future__ import annotations

import itertools
import random
import threading
import time
from dataclasses import dataclass

from holdfast.selftest.product import Product
from holdfast.selftest.record import Record
from holdfast.supervisor import readiness

PARTS = {"api": 4, "worker": 4, "temporal": 3, "terminal": 2, "supervisor": 1}
# Between two kills: most wait until work goes on, some go right into the recovery.
GAPS_S = (0.1, 0.3, 0.8, 1.5, 3.0)
INTO_RECOVERY = 0.35
TOGETHER = 0.2
RECOVERY_S_MAX = 30.0


@dataclass(frozen=True)
class Strike:
    """What one number of a seed stands for; its moment depends on how long a recovery takes."""

    gap_s: float
    after_recovery: bool
    calm_s: float
    parts: tuple[str, ...]


def strike(seed: str, number: int) -> Strike:
    """The same for the same seed, whatever became of the strikes before."""
    chance = random.Random(f"{seed}/killer/{number}")
    count = chance.randint(2, 4) if chance.random() < TOGETHER else 1
    names, weights = list(PARTS), list(PARTS.values())
    return Strike(
        gap_s=chance.choice(GAPS_S) * chance.uniform(0.5, 1.5),
        after_recovery=chance.random() > INTO_RECOVERY,
        calm_s=chance.choice(GAPS_S),
        parts=tuple(dict.fromkeys(chance.choices(names, weights, k=count))),
    )


class Killer(threading.Thread):
    """Strikes one after the other until told to stop."""

    def __init__(self, product: Product, record: Record, seed: str) -> None:
        super().__init__(daemon=True, name="killer")
        self.product = product
        self.record = record
        self.seed = seed
        self._over = threading.Event()

    def run(self) -> None:
        """Kill until told to stop."""
        for number in itertools.count():
            planned = strike(self.seed, number)
            if self._over.wait(planned.gap_s):
                return
            if planned.after_recovery and not self._recovered(planned.calm_s):
                continue
            for part in planned.parts:
                if self.product.kill(part):
                    self.record.kill(part)

    def stop(self) -> None:
        """No more kills."""
        self._over.set()
        self.join(timeout=30)

    def _recovered(self, calm_s: float) -> bool:
        deadline = time.monotonic() + RECOVERY_S_MAX
        while not readiness.is_ready(self.product.url):
            if self._over.wait(0.2) or time.monotonic() > deadline:
                return False
        return not self._over.wait(calm_s)
