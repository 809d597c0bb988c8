"""All processes of the host by key: started at most once, counted, watched, let go in time."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.domain.cages.destinations import Destinations
from holdfast.domain.cages.shown import MachineCage
from holdfast.terminal import tree
from holdfast.terminal.cages.cgroups import Cgroups
from holdfast.terminal.cages.doors import Doors
from holdfast.terminal.cages.enforcement import Enforcement, Excess
from holdfast.terminal.cages.finding import machine_cage
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.limits import CageLimits
from holdfast.terminal.cages.policy import CagePolicy, hidden_paths
from holdfast.terminal.errors import CageSpawnFailed, LimitReached, UnknownProcess
from holdfast.terminal.exits import KEEP_SECONDS, Folder, Folders, Recorded
from holdfast.terminal.launch import MARK, Launched, launch
from holdfast.terminal.process import HostedProcess
from holdfast.terminal.records import Exit, Reason, SpawnRequest
from holdfast.terminal.screens.screen import Screens
from holdfast.terminal.transcript import OUTPUT, read_records

logger = logging.getLogger(__name__)

TERMINALS_PER_SESSION_MAX = 8
PROCESSES_LIVE_MAX = 512
RINGS_KEPT_AFTER_EXIT = 32
IDLE_SECONDS = 1800.0
GRACE_S = 5.0
TICK_S = 0.1
EXPIRY_INTERVAL_S = 600.0
EXPIRY_STEP = 20
FINISHED_IN_MEMORY_MAX = 1000
WATCHED = "memory or processes are watched ten times a second, not held by the kernel"

Announce = Callable[[str, HostedProcess, dict[str, Any]], None]


class Registry:
    """The processes, those of earlier hosts included, which are over or lost."""

    def __init__(
        self,
        state_dir: Path,
        screens: Screens,
        announce: Announce,
        *,
        hidden: Iterable[str | Path | None] = (),
        idle_s: float = IDLE_SECONDS,
        limits: CageLimits | None = None,
    ) -> None:
        self.screens = screens
        self._folders = Folders(state_dir / "processes")
        self._announce = announce
        self._hidden = hidden_paths(state_dir, *hidden)
        self._hiding = Hiding()
        self._idle_s = idle_s
        self._limits = limits or CageLimits()
        self._doors = Doors()
        self._cgroups = Cgroups(state_dir, wanted=self._limits.cgroups)
        self._processes: dict[str, HostedProcess] = {}
        self._expiry_at = 0.0
        self._expiring: Iterator[Folder | None] = iter(())
        self._tasks: set[asyncio.Task[Any]] = set()
        self._load()

    def get(self, key: str) -> HostedProcess:
        """The process under a key, or UnknownProcess."""
        process = self._find(key)
        if process is None:
            raise UnknownProcess(f"no process {key}", key=key)
        return process

    def select(
        self,
        *,
        key: str | None = None,
        run_id: str | None = None,
        session_id: str | None = None,
    ) -> list[HostedProcess]:
        """Those under a key, of a run, of a session, or all; oldest first."""
        if key is not None:
            return [self.get(key)]
        return [
            process
            for process in self._processes.values()
            if run_id in (None, process.request.run_id)
            and session_id in (None, process.request.session_id)
        ]

    @property
    def live(self) -> list[HostedProcess]:
        """Those that are not over."""
        return [process for process in self._processes.values() if process.exit is None]

    async def spawn(self, request: SpawnRequest) -> tuple[HostedProcess, bool]:
        """The process under the request's key, and whether it was started just now."""
        if request.terminal:
            await self.screens.ensure()
        # No await from here on: two spawns of one key must not both find it free.
        known = self._find(request.key)
        if known is not None:
            return known, False
        self._check_room(request)
        policy = None if request.cage is None else CagePolicy.from_mapping(request.cage)
        if policy is not None:
            policy = self._limits.applied(policy)
        return self._start(request, policy), True

    async def close(self, key: str) -> Exit:
        """End a process if need be and let go of all but its record and transcript."""
        process = self.get(key)
        over = await process.kill(Reason.CANCELLED, GRACE_S)
        process.forget()
        return over

    async def end_all(self) -> None:
        """Kill everything that lives."""
        ends = [process.kill(Reason.CANCELLED, GRACE_S) for process in self.live]
        await asyncio.gather(*ends)

    def machine_cage(self) -> MachineCage:
        """The cage that programs get here, with the limits of this host."""
        found = machine_cage()
        limits = {"memory_mb": float(self._limits.memory_mb), "pids": float(self._limits.pids)}
        if found.kind == "none":
            return found
        watched = () if self._cgroups.has("memory") and self._cgroups.has("pids") else (WATCHED,)
        return replace(found, limits=limits, reduced=(*found.reduced, *watched))

    def close_cages(self) -> None:
        """Remove what cages share, once nothing lives any more."""
        self._doors.stop()
        self._cgroups.close()

    def tick(self) -> None:
        """Look at limits and idleness; called about ten times a second."""
        now = time.monotonic()
        for process in self.live:
            if process.suspended:
                continue
            excess = exceeded(process)
            if excess is not None:
                # Only time can be waited for until a program has tidied up.
                patient = excess.reason in (Reason.TIMEOUT, Reason.WALLTIME)
                self._end(process, excess, GRACE_S if patient else 0.0)
            self._tell_idle(process, now)
        self._cgroups.tick()
        self._doors.tick()
        self._expire_some(now)

    def orphans(self) -> list[int]:
        """Children of the host that it did not start; dead ones are reaped on the way."""
        known = {process.root for process in self.live} | {self.screens.pid, self._doors.pid}
        living: list[int] = []
        for pid in tree.children_of(os.getpid()):
            if pid in known:
                continue
            if tree.is_alive(pid):
                living.append(pid)
            else:
                tree.reap(pid)
        return living

    def _find(self, key: str) -> HostedProcess | None:
        """The process in memory, or what its folder tells of one that ended long ago."""
        process = self._processes.get(key)
        recorded = None if process else self._folders.find(key)
        if recorded is not None and recorded.exit is not None:
            return HostedProcess.from_disk(recorded, self.screens, recorded.exit)
        return process

    def _start(self, request: SpawnRequest, policy: CagePolicy | None) -> HostedProcess:
        folder = self._folders.of(request.key)
        started_at_ms = time.time_ns() // 1_000_000
        folder.write_request(request, started_at_ms)
        mark, enforcement = folder.path.name, None
        try:
            if policy is not None:
                enforcement = Enforcement(policy, self._cgroups, mark)
            launched = self._launch(request, policy, folder, enforcement, folder.make_durable)
        except BaseException:
            # The program never ran, so the key is still free.
            folder.remove()
            if enforcement is not None:
                enforcement.close()
            raise
        process = HostedProcess(
            request,
            folder,
            self.screens,
            policy=policy,
            enforcement=enforcement,
            started_at_ms=started_at_ms,
        )
        self._processes[request.key] = process
        guarded = policy is not None and policy.egress is not None
        process.run(
            launched,
            on_over=self._over,
            orphans=self.orphans,
            # A cage that waits for its door fails by itself, in words.
            again=None if guarded else lambda: self._launch(request, policy, folder, enforcement),
        )
        if policy is not None and policy.egress is not None:
            self._keep(asyncio.create_task(self._open_door(process, policy.egress, launched)))
        self._announce("spawned", process, {})
        return process

    def _launch(
        self,
        request: SpawnRequest,
        policy: CagePolicy | None,
        folder: Folder,
        enforcement: Enforcement | None,
        ready: Callable[[], None] = lambda: None,
    ) -> Launched:
        return launch(
            request,
            policy,
            hidden=self._hidden,
            hiding=self._hiding,
            mark=folder.path.name,
            enforcement=enforcement,
            ready=ready,
        )

    def _check_room(self, request: SpawnRequest) -> None:
        live = self.live
        if len(live) >= PROCESSES_LIVE_MAX:
            raise LimitReached(f"the host runs {PROCESSES_LIVE_MAX} processes already")
        mine = [
            process
            for process in live
            if process.request.terminal and process.request.session_id == request.session_id
        ]
        if request.terminal and len(mine) >= TERMINALS_PER_SESSION_MAX:
            raise LimitReached(
                f"the session has {TERMINALS_PER_SESSION_MAX} terminals already",
                limit=TERMINALS_PER_SESSION_MAX,
            )

    def _end(self, process: HostedProcess, excess: Excess, grace_s: float) -> None:
        self._keep(asyncio.create_task(process.kill(excess.reason, grace_s, excess.message)))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_door(
        self, process: HostedProcess, rules: Destinations, launched: Launched
    ) -> None:
        """The cage's way to the network; without it the program is never started."""
        try:
            await self._doors.open(process.folder.path.name, rules, launched)
        except CageSpawnFailed as error:
            await process.kill(Reason.CAGE, 0, error.message)

    def _over(self, process: HostedProcess) -> None:
        self._doors.close(process.folder.path.name)
        self._announce("exited", process, {})
        self._trim()

    def _trim(self) -> None:
        """Let go of the oldest that are over: first their rings, later all but the folder."""
        done = [process for process in self._processes.values() if process.exit is not None]
        idle = [process for process in done if not process.viewers]
        for process in idle[: max(0, len(done) - RINGS_KEPT_AFTER_EXIT)]:
            if process.has_memory:
                process.forget()
        for process in idle[: max(0, len(done) - FINISHED_IN_MEMORY_MAX)]:
            del self._processes[process.key]

    def _tell_idle(self, process: HostedProcess, now: float) -> None:
        idle = process.request.terminal and now - process.last_activity >= self._idle_s
        if idle != process.idle_told:
            process.idle_told = idle
            self._announce("idle" if idle else "active", process, {})

    def _load(self) -> None:
        recorded = sorted(self._folders.all(), key=lambda entry: entry.started_at_ms)
        lost = [entry for entry in recorded if entry.exit is None]
        # They should have died with the host that started them; make sure before saying so.
        for pid in tree.marked(MARK.encode(), [entry.folder.name for entry in lost]):
            tree.kill(pid)
        for entry in recorded:
            over = entry.exit or self._record_loss(entry)
            process = HostedProcess.from_disk(entry, self.screens, over)
            self._processes[process.key] = process
        self._trim()

    def _record_loss(self, entry: Recorded) -> Exit:
        folder = Folder(entry.folder)
        size = lines = 0
        if folder.transcript.exists():
            for record in read_records(folder.transcript):
                if record.kind == OUTPUT:
                    size = record.seq + len(record.data)
                    lines += record.data.count(b"\n")
        now = time.time_ns() // 1_000_000
        over = Exit(
            reason=Reason.LOST,
            code=None,
            signal=None,
            at_ms=now,
            duration_ms=max(0, now - entry.started_at_ms),
            output_bytes=size,
            output_lines=lines,
            message="the terminal host that ran it is gone",
        )
        folder.write_exit(over)
        logger.warning("%s was lost with an earlier host", entry.request.key)
        return over

    def _expire_some(self, now: float) -> None:
        """Remove what ended a day ago, a few folders at a time so that nobody has to wait."""
        if now >= self._expiry_at:
            self._expiry_at = now + EXPIRY_INTERVAL_S
            self._expiring = self._folders.expired(time.time() - KEEP_SECONDS)
        for folder in itertools.islice(self._expiring, EXPIRY_STEP):
            if folder is not None:
                self._forget(folder)

    def _forget(self, folder: Folder) -> None:
        for process in [*self._processes.values()]:
            if process.folder.path == folder.path:
                if process.viewers:
                    return
                process.forget()
                del self._processes[process.key]
        folder.remove()


def exceeded(process: HostedProcess) -> Excess | None:
    """The limit that a running process is over, if any."""
    elapsed, policy, request = process.clock.elapsed_s, process.policy, process.request
    walltime = request.walltime_s if policy is None else policy.walltime_s
    if walltime is None:
        walltime = request.walltime_s
    if request.timeout_s is not None and elapsed > request.timeout_s:
        return Excess(Reason.TIMEOUT, "")
    if walltime is not None and elapsed > walltime:
        return Excess(Reason.WALLTIME, "")
    if process.enforcement is None or process.root is None:
        return None
    return process.enforcement.excess(process.root)
