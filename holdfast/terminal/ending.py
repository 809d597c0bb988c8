"""How a process ends: noticed at once, orphans ended with it, output read out, reason kept."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.terminal import tree
from holdfast.terminal.cages.accounting import kernel_kills
from holdfast.terminal.launch import Launched
from holdfast.terminal.records import Exit, Reason

if TYPE_CHECKING:
    from holdfast.terminal.process import HostedProcess

DRAIN_TIMEOUT_S = 2.0
# Mostly it is the first process of a cage, and nearly over.
ORPHAN_POLL_FIRST_S, ORPHAN_POLL_S = 0.001, 0.02
MESSAGE_BYTES = 2048
STATUS_BYTES_MAX = 4096
SWAPPED = b"Race condition binding dirfd"


class Ending:
    """Waits for the leader by pidfd; the end of the output says nothing about it."""

    def __init__(
        self,
        process: "HostedProcess",
        launched: Launched,
        *,
        on_over: Callable[["HostedProcess"], Any],
        orphans: Callable[[], list[int]],
    ) -> None:
        self.leader_gone = False
        self._orphans = orphans
        self._process = process
        self._launched = launched
        self._on_over = on_over
        self._reason: Reason | None = None
        self._message = ""
        self._kill_at: float | None = None
        self._killing: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._pidfd = os.pidfd_open(launched.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._leader_is_gone)

    async def kill(self, reason: Reason, grace_s: float, message: str = "") -> None:
        """SIGTERM to the programs, `grace_s`, SIGKILL to everything; the first reason counts."""
        if self._killing is None:
            self._reason, self._message = reason, message
            self._kill_at = time.monotonic() + grace_s
            self._killing = asyncio.create_task(self._kill(grace_s))
        elif grace_s <= 0 and not self.leader_gone:
            # It had time to tidy up and took all memory instead.
            self._kill_tree()
        await asyncio.shield(self._killing)

    async def _kill(self, grace_s: float) -> None:
        over = self._process.over
        if not self.leader_gone and grace_s > 0:
            self._terminate()
            await asyncio.wait([over], timeout=grace_s)
        if not over.done() and not self.leader_gone:
            self._kill_tree()
        await asyncio.wait([over])

    def _terminate(self) -> None:
        root = self._launched.pid
        # To bwrap a SIGTERM is the end without warning, so only the programs inside are asked.
        spared = {root, *tree.children_of(root)} if self._launched.status is not None else set()
        for pid in tree.descendants(root):
            if pid not in spared:
                tree.send(pid, signal.SIGTERM)
                if self._process.request.terminal:
                    # Interactive shells ignore SIGTERM but not the loss of their terminal.
                    tree.send(pid, signal.SIGHUP)
        if self._process.suspended:
            tree.proceed(root)

    def _kill_tree(self) -> None:
        root = self._launched.pid
        if self._launched.status is not None:
            # The first process of the namespace takes all others with it, however many they are.
            for pid in (*tree.children_of(root), root):
                tree.send(pid, signal.SIGKILL)
        tree.kill(root)

    def _leader_is_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.leader_gone = True
        self._finishing = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        status = self._launched.reap()
        await self._end_orphans()
        self._process.drain()
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._process.drained.wait()
        except TimeoutError:
            # Somebody outside of the tree has the other end open; its bytes are not ours.
            self._process.stop_reading()
        over = self._exit(status)
        if self._is_swapped(over) and self._process.start_again():
            return
        self._process.finish(over)
        self._on_over(self._process)

    async def _end_orphans(self) -> None:
        """Programs that the leader left behind have come to the host as their new parent."""
        poll_s = ORPHAN_POLL_FIRST_S
        while orphans := self._orphans():
            if self._kill_at is None or time.monotonic() >= self._kill_at:
                for orphan in orphans:
                    tree.kill(orphan)
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, ORPHAN_POLL_S)

    def _exit(self, status: int) -> Exit:
        code, number = split_status(status)
        reason = Reason.EXITED if number is None else Reason.SIGNALLED
        message = ""
        if self._launched.status is not None:
            inside = self._inside()
            if number is None and inside is None:
                reason, message = Reason.CAGE, self._last_words()
            elif inside is not None and inside > 128:
                code, number, reason = None, inside - 128, Reason.SIGNALLED
        enforcement = self._process.enforcement
        kills = kernel_kills() - self._process.kernel_kills
        if enforcement is None and number == signal.SIGKILL and kills > 0:
            reason = Reason.MEMORY
        if enforcement is not None and reason is not Reason.CAGE:
            # The leader may be over before the next look at the limits.
            excess = enforcement.excess(None) or enforcement.excess_by_signal(number)
            if excess is not None:
                reason, message = excess.reason, excess.message
        ring = self._process.ring
        return Exit(
            reason=self._reason or reason,
            code=code,
            signal=number,
            at_ms=time.time_ns() // 1_000_000,
            duration_ms=round(self._process.clock.elapsed_s * 1000),
            output_bytes=ring.end,
            output_lines=ring.lines_total + (self._last_bytes()[-1:] not in (b"", b"\n")),
            message=self._message if self._reason else message,
        )

    def _is_swapped(self, over: Exit) -> bool:
        """Whether bubblewrap saw its folder exchanged while it started; nothing has run then."""
        return over.reason is Reason.CAGE and SWAPPED in self._last_bytes()

    def _inside(self) -> int | None:
        """The exit code of the program in the cage, or None if the cage never ran one."""
        assert self._launched.status is not None
        os.set_blocking(self._launched.status, False)
        try:
            said = self._launched.heard + os.read(self._launched.status, STATUS_BYTES_MAX)
        except BlockingIOError:
            return None
        # Killed while it wrote, bwrap leaves a line without its end.
        lines = said[: said.rfind(b"\n") + 1].splitlines()
        codes = [json.loads(line).get("exit-code") for line in lines if line.strip()]
        return next((int(code) for code in codes if code is not None), None)

    def _last_words(self) -> str:
        return self._last_bytes().decode(errors="replace")

    def _last_bytes(self) -> bytes:
        ring = self._process.ring
        return ring.read(max(ring.start, ring.end - MESSAGE_BYTES), MESSAGE_BYTES)


def split_status(status: int) -> tuple[int | None, int | None]:
    """Exit code or signal of a wait status; the other is None."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
