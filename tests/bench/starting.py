"""How long `holdfast up` takes until it is ready, in a new home and in a used one."""

from __future__ import annotations

from tests.bench.rounds import TINY, middle, noise, timed_ms
from tests.bench.row import Row
from tests.support.servers.product import Product


def measure() -> list[Row]:
    """A few starts; stops are not counted."""
    first, again = [], []
    for _ in range(1 if TINY else 3):
        product = Product()
        try:
            first.append(timed_ms(product.start) / 1000)
            product.stop()
            again.append(timed_ms(product.start) / 1000)
        finally:
            product.close()
    return [
        Row(f"start until ready, {home} home", middle(times), "s", goal="< 6 s", noise=noise(times))
        for home, times in (("new", first), ("used", again))
    ]
