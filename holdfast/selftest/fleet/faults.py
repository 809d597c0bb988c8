"""Random faults of a fleet: programs that are killed or stopped, and a network that is cut.

Two threads strike, so that programs die while the network is cut. A seed fixes what each strike
is; its moment depends on how long a recovery takes.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.selftest.fleet.network import CLIENTS
from holdfast.selftest.fleet.product import APIS, HOSTS, FleetProduct
from holdfast.selftest.record import Record

GAPS_S = (0.1, 0.5, 1.5, 3.0)
INTO_RECOVERY = 0.35
RECOVERY_S_MAX = 12.0
JOIN_S = 60.0
# Weighed by what an operator sees most: workers are replaced, machines fail, services restart.
PARTS = {"worker": 6, "terminal": 3, "api": 3, "temporal": 2, "postgres": 2}
SIGNALS: dict[str, tuple[signal.Signals, ...]] = {
    "worker": (signal.SIGKILL, signal.SIGTERM),
    "terminal": (signal.SIGKILL, signal.SIGTERM),
    "api": (signal.SIGKILL, signal.SIGTERM),
    "temporal": (signal.SIGKILL, signal.SIGTERM),
    # Postgres calls these its fast and its immediate shutdown; after the latter it recovers.
    "postgres": (signal.SIGINT, signal.SIGQUIT),
}
MACHINES = {"worker": HOSTS, "terminal": HOSTS, "api": APIS}
WHOLE_HOST = 0.12
NODES = (*HOSTS, *APIS, "postgres", "temporal", "objects", CLIENTS)
CUTS = {"cut": 6, "isolate": 2, "slow": 2}
# A blink, a while, and longer than a host may be away before its calls are lost.
CUT_S = (0.5, 2.0, 6.0, 14.0, 30.0)
CALM_S = (1.0, 3.0, 6.0)


@dataclass(frozen=True)
class Strike:
    """Signals to programs, after this pause."""

    parts: tuple[str, ...]
    number: signal.Signals
    gap_s: float
    after_recovery: bool


@dataclass(frozen=True)
class Cut:
    """A network that is disturbed for a while."""

    kind: str
    names: tuple[str, ...]
    lasts_s: float
    calm_s: float


def strike(seed: str, number: int) -> Strike:
    """The same for the same seed, whatever became of the strikes before."""
    chance = random.Random(f"{seed}/fleet-strike/{number}")
    gap_s = chance.choice(GAPS_S) * chance.uniform(0.5, 1.5)
    after_recovery = chance.random() > INTO_RECOVERY
    if chance.random() < WHOLE_HOST:
        host = chance.choice(HOSTS)
        parts = (f"{host}/worker", f"{host}/terminal")
        return Strike(parts, signal.SIGKILL, gap_s, after_recovery)
    kind = chance.choices(list(PARTS), list(PARTS.values()))[0]
    machine = chance.choice(MACHINES.get(kind, (kind,)))
    return Strike((f"{machine}/{kind}",), chance.choice(SIGNALS[kind]), gap_s, after_recovery)


def cut(seed: str, number: int) -> Cut:
    """The same for the same seed."""
    chance = random.Random(f"{seed}/fleet-cut/{number}")
    kind = chance.choices(list(CUTS), list(CUTS.values()))[0]
    names = tuple(chance.sample(NODES, 2 if kind == "cut" else 1))
    lasts_s = chance.choice(CUT_S) * chance.uniform(0.7, 1.3)
    return Cut(kind, names, lasts_s, chance.choice(CALM_S))


class Faults:
    """Both strikers of a trial; one of them has nothing to do where nothing can be cut."""

    def __init__(self, product: FleetProduct, record: Record, seed: str) -> None:
        self.product = product
        self.record = record
        self.seed = seed
        self._over = threading.Event()
        self._threads = [_thread(self._strike, "striker")]
        if product.network.can_cut:
            self._threads.append(_thread(self._cut, "cutter"))

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No more faults, and a network that is whole."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=JOIN_S)
        self.product.network.heal()

    def _strike(self) -> None:
        for number in itertools.count():
            planned = strike(self.seed, number)
            if planned.after_recovery:
                self._wait_for_recovery()
            if self._over.wait(planned.gap_s):
                return
            for part in planned.parts:
                if self.product.send(part, planned.number):
                    self.record.kill(f"{planned.number.name} {part.rpartition('/')[2]}")

    def _cut(self) -> None:
        network = self.product.network
        for number in itertools.count():
            planned = cut(self.seed, number)
            if self._over.wait(planned.calm_s):
                return
            if set(planned.names) - set(network.places):
                continue  # a fleet whose blobs are in a folder has no machine for them
            if planned.kind == "slow":
                network.slow(*planned.names)
            else:
                network.cut(*planned.names)
            self.record.kill(planned.kind)
            ended = self._over.wait(planned.lasts_s)
            network.heal()
            if ended:
                return

    def _wait_for_recovery(self) -> None:
        """Until all is well again, or for about as long as most cuts take."""
        deadline = time.monotonic() + RECOVERY_S_MAX
        while time.monotonic() < deadline and not self.product.is_ready():
            if self._over.wait(0.3):
                return


def _thread(work: Callable[[], None], name: str) -> threading.Thread:
    return threading.Thread(target=work, daemon=True, name=name)
