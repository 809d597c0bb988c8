"""Archives and prunes sessions as `[retention]` in config.toml says; unless it says so, nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.upkeep import retention
from holdfast.storage.upkeep.retention import Rules

log = structlog.get_logger()
EVERY_S = 60.0


async def keep_forever(
    store: OpenStore, config: Callable[[], Config], *, every_s: float = EVERY_S
) -> None:
    """Look for as long as the worker lives."""
    while True:
        await asyncio.sleep(every_s)
        await keep(store, config())


async def keep(store: OpenStore, config: Config) -> int:
    """One look; how many sessions were archived or pruned, or would have been."""
    wanted = config.retention
    rules = Rules(wanted.archive_after_days, wanted.prune_after_days)
    if rules == Rules():
        return 0
    work = partial(retention.keep, store, rules, dry_run=wanted.dry_run)
    records = await asyncio.to_thread(work)
    for operator_id, record in records.items():
        log.info("retention.kept", operator_id=operator_id, **record.told())
    return sum(len(one.archived) + len(one.pruned) for one in records.values())
