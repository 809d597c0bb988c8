"""What a worker does with a call that may have been started before: start it, attach, or give up.

A process is started at most once. The claim is written before the start, so whoever finds one
asks the host that wrote it; only a host that says for certain that it never started the call
gives it back.
"""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from activities.terminals import Terminals
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.domain.errors import HostIsAway
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import executions
from holdfast.storage.hosts.executions import Claim, Verdict
from holdfast.terminal.client import ProcessInfo, SpawnRequest, TerminalClient
from holdfast.terminal.errors import HostRestarted, UnknownProcess

# The host forgets a process a day after its end; a claim that old proves nothing any more.
SURE_FOR_MS = 20 * 3_600_000
LOST_WORDS = (
    "The machine that ran this command was lost: unknown whether it finished. Look at what it "
    "changed before you run it again."
)


class Lost(Exception):
    """The call was started by somebody who is gone, and nobody knows how it ended."""


def lost_outcome() -> ToolOutcome:
    """What the model reads of a lost call."""
    return ToolOutcome({"error": LOST_WORDS, "reason": "lost"}, is_error=True)


async def begin(
    store: OpenStore, terminals: Terminals, process: SpawnRequest, claim: Claim
) -> ProcessInfo:
    """The process of a claimed call, started now or before; Lost when nobody can say."""
    client = await terminals.client()
    if claim.verdict is Verdict.ELSEWHERE:
        raise ApplicationError("the call was started on another host", type=HostIsAway.code)
    if claim.verdict is Verdict.LOST:
        raise Lost
    if claim.verdict is Verdict.RESTARTED or claim.age_ms > SURE_FOR_MS:
        return await _remembered(client, process.key)
    try:
        return await client.spawn(process, epoch=claim.epoch)
    except HostRestarted:
        if claim.verdict is Verdict.START:
            # Nobody else knew of this call, and this host says that it did not start it.
            await store.awrite(lambda db: executions.release(db, process.key))
            raise
        await store.awrite(lambda db: executions.lose(db, process.key))
        return await _remembered(client, process.key)


async def _remembered(client: TerminalClient, key: str) -> ProcessInfo:
    """What the host has on disk of a process of an earlier life of its own."""
    try:
        return await client.info(key)
    except UnknownProcess:
        raise Lost from None
