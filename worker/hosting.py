"""The host beside this worker: registered, kept alive in the database, and served its own steps.

The terminal host says who it is; the worker notes it and serves its queue. That worker is not
versioned and runs no workflow: a build that is new takes the steps of sessions that are old.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from importlib.metadata import version

import structlog
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from holdfast.domain.errors import Unavailable
from holdfast.domain.events import HostAway, HostBack
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import given_up, hosts
from holdfast.storage.hosts.given_up import Alive
from holdfast.storage.hosts.hosts import Seen
from holdfast.storage.log import events
from holdfast.storage.sessions import attention, sessions
from holdfast.terminal.errors import TerminalError
from holdfast.terminal.identity import Identity
from worker.parts import Parts

log = structlog.get_logger()
ACTIVITIES_MAX = 300
# A supervisor starts a terminal host at the same time as us; where there is none, we start one.
HOST_WAIT_S = 5.0
# Steps on files are short, and commands live in the terminal host: neither is waited for.
GRACE = timedelta(seconds=5)


class Hosting:
    """Serves the steps of the host beside this worker for as long as both are there."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        store: OpenStore,
        parts: Parts,
        *,
        grace: timedelta = GRACE,
    ) -> None:
        self._grace = grace
        self._client, self._settings, self._store, self._parts = client, settings, store, parts
        self._identity: Identity | None = None
        self._worker: Worker | None = None
        self._serving: asyncio.Task[None] | None = None
        self._has_given_up = False  # there may be processes that nobody waits for any more
        self._ending: asyncio.Task[None] | None = None

    async def keep_forever(self) -> None:
        """Beat again and again; a host that does not answer is left to fall silent."""
        if self._identity is None:
            await self._parts.terminals.wait_for_host(HOST_WAIT_S)
        while True:
            try:
                await self.beat()
            except (TerminalError, OSError) as error:
                log.warning("host.away", error=str(error))
            await asyncio.sleep(hosts.BEAT_S)

    async def beat(self) -> None:
        """Say once that the host is there; a host that is new is registered and served."""
        identity = await self._parts.terminals.identity()
        is_new = identity != self._identity
        if not is_new:
            is_back = await self._store.awrite(partial(_beat, host_id=identity.id))
        else:
            is_back = await self._store.awrite(partial(_register, seen=self._seen(identity)))
            log.info("host.registered", host_id=identity.id, epoch=identity.epoch)
        await self._serve(identity)
        self._identity = identity
        if is_back or is_new:
            self._has_given_up = True
        if self._has_given_up and (self._ending is None or self._ending.done()):
            # Beside the beats: whoever ignores a SIGTERM must not make the host look away.
            self._ending = asyncio.create_task(self._end_given_up())

    async def stop(self) -> None:
        """Place no more sessions here, and let go of the steps: the next worker takes them."""
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        if self._identity is not None:
            host_id = self._identity.id
            try:
                await self._store.awrite(partial(hosts.leave, host_id=host_id))
            except Unavailable as error:
                # Unheard of for ten seconds, it is away.
                log.warning("host.left_without_a_word", error=str(error))
        await self._stop_serving()

    async def _end_given_up(self) -> None:
        """End what still runs although it was lost or cancelled while nobody was here."""
        self._has_given_up = False
        try:
            client = await self._parts.terminals.client()
            # A host of an earlier release lists those that ended too.
            found = [one for one in await client.list(alive=True) if one.exit is None]
            alive = [Alive(one.key, one.session_id, one.run_id) for one in found]
            keys = await self._store.aread(partial(given_up.among, alive=alive))
            await asyncio.gather(*(client.kill(key) for key in keys))
        except Exception as error:  # noqa: BLE001 - the next beat tries again
            self._has_given_up = True
            log.warning("host.given_up_not_ended", error=str(error)[:500])
            return
        if keys:
            log.warning("host.given_up_ended", keys=keys)

    def _seen(self, identity: Identity) -> Seen:
        return Seen(
            id=identity.id,
            name=self._settings.host_name,
            epoch=identity.epoch,
            address=self._settings.host_address,
            task_queue=queue_of(self._settings.task_queue, identity.id),
            version=version("holdfast"),
        )

    async def _serve(self, identity: Identity) -> None:
        if self._serving is not None and self._serving.done():
            log.warning("host.worker_ended", error=str(self._serving.exception())[:500])
            self._worker = self._serving = None
        known = self._identity
        if known is not None and known.id != identity.id:
            await self._stop_serving()
        if self._worker is None:
            queue = queue_of(self._settings.task_queue, identity.id)
            self._worker = make_host_worker(self._client, queue, self._parts, self._grace)
            self._serving = asyncio.create_task(self._worker.run())

    async def _stop_serving(self) -> None:
        worker, self._worker = self._worker, None
        serving, self._serving = self._serving, None
        if worker is not None and serving is not None and not serving.done():
            await worker.shutdown()
            await asyncio.gather(serving, return_exceptions=True)


def queue_of(task_queue: str, host_id: str) -> str:
    """The queue of a host's own steps: `holdfast-host-<id>` unless the shared one is renamed."""
    return f"{task_queue}-host-{host_id}"


def make_host_worker(client: Client, queue: str, parts: Parts, grace: timedelta) -> Worker:
    """A worker of activities only, which no deployment version binds."""
    return Worker(
        client,
        task_queue=queue,
        activities=parts.host_activities,
        max_concurrent_activities=ACTIVITIES_MAX,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(minimum=1, maximum=10, initial=2),
        graceful_shutdown_timeout=grace,
        max_heartbeat_throttle_interval=timedelta(milliseconds=500),
        default_heartbeat_throttle_interval=timedelta(milliseconds=500),
    )


def _register(db: Db, seen: Seen) -> bool:
    hosts.register(db, seen)
    return _tell(db, seen.id)


def _beat(db: Db, host_id: str) -> bool:
    hosts.beat(db, host_id)
    return _tell(db, host_id)


def _tell(db: Db, host_id: str) -> bool:
    """Tell sessions whose host fell silent, or is heard of again; whether ours is back.

    Each is told once, by whichever worker sees it first.
    """
    for away_id, name in hosts.newly_away(db):
        _append(db, away_id, name, HostAway)
    is_back = hosts.newly_back(db, host_id)
    if is_back:
        _append(db, host_id, hosts.get(db, host_id).name, HostBack)
    return is_back


def _append(db: Db, host_id: str, name: str, kind: type[HostAway | HostBack]) -> None:
    for session_id in hosts.sessions_at_work(db, host_id):
        events.append(db, session_id, kind(session_id=session_id, host_id=host_id, name=name))
        attention.refresh(db, sessions.lock(db, session_id))
