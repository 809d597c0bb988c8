"""All processes of the host by key: started at most once, counted, watched, let go in time."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.terminal import tree
from holdfast.terminal.cage import CagePolicy, hidden_paths, probe
from holdfast.terminal.errors import LimitReached, UnknownProcess
from holdfast.terminal.exits import KEEP_SECONDS, Folder, Folders, Recorded
from holdfast.terminal.launch import MARK, launch
from holdfast.terminal.limits import measure
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
CAGE_OWN_PROCESSES = 2
MEGABYTE = 1024 * 1024

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
    ) -> None:
        self.screens = screens
        self._folders = Folders(state_dir / "processes")
        self._announce = announce
        self._hidden = hidden_paths(state_dir, *hidden)
        self._idle_s = idle_s
        self._processes: dict[str, HostedProcess] = {}
        self._expiry_at = 0.0
        self._expiring: Iterator[Folder | None] = iter(())
        self._endings: set[asyncio.Task[Exit]] = set()
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
            probe()
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

    def tick(self) -> None:
        """Look at limits and idleness; called about ten times a second."""
        now = time.monotonic()
        for process in self.live:
            if process.suspended:
                continue
            reason = exceeded(process)
            if reason is not None:
                # Memory and processes cannot wait for a program to tidy up.
                grace = 0.0 if reason in (Reason.MEMORY, Reason.PIDS) else GRACE_S
                self._end(process, reason, grace)
            self._tell_idle(process, now)
        self._expire_some(now)

    def orphans(self) -> list[int]:
        """Children of the host that it did not start; dead ones are reaped on the way."""
        known = {process.root for process in self.live} | {self.screens.pid}
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
        try:
            launched = launch(request, policy, hidden=self._hidden, mark=folder.path.name)
        except BaseException:
            # The program never ran, so the key is still free.
            folder.remove()
            raise
        process = HostedProcess(
            request, folder, self.screens, policy=policy, started_at_ms=started_at_ms
        )
        self._processes[request.key] = process
        process.run(launched, on_over=self._over, orphans=self.orphans)
        self._announce("spawned", process, {})
        return process

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

    def _end(self, process: HostedProcess, reason: Reason, grace_s: float) -> None:
        ending = asyncio.create_task(process.kill(reason, grace_s))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def _over(self, process: HostedProcess) -> None:
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


def exceeded(process: HostedProcess) -> Reason | None:
    """The limit that a running process is over, if any."""
    elapsed, policy = process.clock.elapsed_s, process.policy
    walltime = process.request.walltime_s if policy is None else policy.walltime_s
    if walltime is None:
        walltime = process.request.walltime_s
    if process.request.timeout_s is not None and elapsed > process.request.timeout_s:
        return Reason.TIMEOUT
    if walltime is not None and elapsed > walltime:
        return Reason.WALLTIME
    root = process.root
    if policy is None or root is None or (policy.memory_mb is None and policy.pids is None):
        return None
    usage = measure(root)
    if policy.memory_mb is not None and usage.memory_bytes > policy.memory_mb * MEGABYTE:
        return Reason.MEMORY
    if policy.pids is not None and usage.processes > policy.pids + CAGE_OWN_PROCESSES:
        return Reason.PIDS
    return None
