"""Whether everything that a message needs answers: the store, Temporal and a worker."""

from __future__ import annotations

from api.services import Services
from holdfast.storage.database.engine import ping


async def trouble(services: Services) -> dict[str, str]:
    """What does not answer, by part; empty when ready."""
    found: dict[str, str] = {}
    try:
        await services.store.aread(ping)
    except Exception as error:  # noqa: BLE001 - any failure of the store means not ready
        found["store"] = str(error)[:200]
    words = await services.temporal.trouble()
    if words is not None:
        found["temporal"] = words
    return found
