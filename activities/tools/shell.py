"""The shell tool: a process in the terminal host, keyed by its tool call, so it runs once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.terminals import Terminals
from activities.tools.claims import LOST_WORDS, Lost, begin, lost_outcome
from activities.tools.requests import ToolRequest
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import SHELL, ShellArguments
from holdfast.agent.tools.summaries import summary
from holdfast.agent.tools.tool_spec import OUTPUT_BYTES_MAX
from holdfast.domain.errors import NoHost
from holdfast.domain.lifecycle import State
from holdfast.domain.project_file import AgentSpec
from holdfast.settings.config import Config
from holdfast.settings.part_environments import given_by_name
from holdfast.storage.database import blobs
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.hosts.executions import Claim
from holdfast.storage.log import frames
from holdfast.storage.projects.owners import Owner, owner_of
from holdfast.storage.sessions import ptys, sessions
from holdfast.terminal.client import Exit, ProcessInfo, Reason, SpawnRequest, TerminalClient
from holdfast.terminal.errors import (
    BadCage,
    BadRequest,
    CageSpawnFailed,
    CageUnavailable,
    LimitReached,
    SpawnFailed,
)
from holdfast.terminal.showing import transcript_copy
from holdfast.terminal.transcript import read_raw

TAIL_BYTES = OUTPUT_BYTES_MAX
# The model's share of a tool result less what stands beside the output.
JSON_BYTES_MAX = 60 * 1024
FLUSH_S = 0.1
STREAMED_BYTES_MAX = 1024 * 1024
KEPT_BYTES_MAX = 256 * 1024 * 1024
# A spawn that failed for one of these is told to the model; anything else is tried again.
REFUSED = (BadCage, BadRequest, CageSpawnFailed, CageUnavailable, LimitReached, SpawnFailed)


@dataclass
class _Output:
    """The last 32 KiB for the model, and what is not streamed yet."""

    tail: bytes = b""
    total: int = 0
    waiting: bytes = b""
    streamed: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        room = STREAMED_BYTES_MAX - self.streamed - len(self.waiting)
        if room > 0:
            self.waiting += data[:room]
            self.more.set()


class Shell:
    """Runs commands through the terminal host."""

    def __init__(
        self, store: OpenStore, terminals: Terminals, config: Callable[[], Config]
    ) -> None:
        self.store = store
        self.terminals = terminals
        self.config = config

    async def run(self, request: ToolRequest, arguments: ShellArguments) -> ToolOutcome:
        """Start the command, or attach to it if an earlier attempt did; wait for its end."""
        call, session = request.call, request.session
        if not await asyncio.to_thread(os.path.isdir, session.working_directory):
            words = f"the session's folder {session.working_directory} is not on this machine"
            return ToolOutcome({"error": words, "code": NoHost.code}, is_error=True)
        below = below_root(session.working_directory, arguments.working_directory)
        if below is None:
            words = "working_directory must be a folder inside the session's working directory"
            return ToolOutcome({"error": words}, is_error=True)
        owner = await self.store.aread(lambda db: owner_of(db, session))
        process = spawn_request(request, arguments, below, owner=owner, config=self.config())
        client = await self.terminals.client()
        try:
            info = await self._begin(process, request.claim)
        except REFUSED as error:
            return ToolOutcome({"error": str(error), "code": error.code}, is_error=True)
        except Lost:
            return lost_outcome()
        await self._respect_pause(client, process.key, session.id)
        if process.terminal:
            await self._note_terminal(request, arguments.command)
        output = _Output()
        writer = asyncio.create_task(self._stream(call, output))
        try:
            async for _, data in client.output(info.key, 0):
                output.add(data)
            ended = await client.wait(info.key)
        except asyncio.CancelledError:
            await self._stop(process.key)
            raise
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        await self._flush(call, output)
        return await self._outcome(ended, output, process)

    async def _begin(self, process: SpawnRequest, claim: Claim | None) -> ProcessInfo:
        if claim is None:
            return await (await self.terminals.client()).spawn(process)
        return await begin(self.store, self.terminals, process, claim)

    async def _respect_pause(self, client: TerminalClient, key: str, session_id: str) -> None:
        """A pause that came while the process was being started stops it too.

        The pause marks the session before it stops processes, so one of the two sees the other;
        a resume in between is seen by the second look.
        """
        suspended = False
        while True:
            session = await self.store.aread(lambda db: sessions.get(db, session_id))
            if session.state != State.PAUSED:
                if suspended:
                    await client.resume(key=key)
                return
            if suspended:
                return
            await client.suspend(key=key)
            suspended = True

    async def _stop(self, key: str) -> None:
        """Kill only when the run is cancelled: another attempt may own the process by now."""
        details = activity.cancellation_details()
        if details is None or not details.cancel_requested:
            return
        client = await self.terminals.client()
        with contextlib.suppress(Exception):
            await asyncio.shield(client.kill(key))

    async def _note_terminal(self, request: ToolRequest, command: str) -> None:
        call, claim = request.call, request.claim
        pty = Pty(
            id=call.id,
            session_id=call.session_id,
            run_id=call.run_id,
            subagent=None if call.caller == "primary" else call.caller.rsplit(".", 1)[-1],
            tool_call_id=call.id,
            command=command[:4000],
            cage="disabled" if request.agent.cage == "disabled" else "enabled",
            created_by="model",
            host_id=None if claim is None else claim.host_id,
        )
        await self.store.awrite(lambda db: ptys.opened(db, pty))

    async def _stream(self, call: ToolCallRow, output: _Output) -> None:
        while True:
            await output.more.wait()
            output.more.clear()
            await self._flush(call, output)
            await asyncio.sleep(FLUSH_S)

    async def _flush(self, call: ToolCallRow, output: _Output) -> None:
        if not output.waiting:
            return
        data, output.waiting = output.waiting, b""
        output.streamed += len(data)
        payload: dict[str, Any] = {
            "run_id": call.run_id,
            "tool_call_id": call.id,
            "agent_path": call.caller,
            "text": data.decode("utf-8", "replace"),
        }
        await self.store.awrite(
            lambda db: frames.append(db, call.session_id, ("tool_output", payload))
        )

    async def _outcome(self, ended: Exit, output: _Output, process: SpawnRequest) -> ToolOutcome:
        tail = output.tail.decode("utf-8", "replace")
        shown = _fitting(tail)
        truncated = output.total > TAIL_BYTES or len(shown) < len(tail)
        result: dict[str, Any] = {
            "exit_code": ended.code,
            "output": shown,
            "truncated": truncated,
            "duration_ms": ended.duration_ms,
        }
        if ended.signal is not None:
            result["signal"] = ended.signal
        if ended.reason is not Reason.EXITED:
            result["reason"] = ended.failure or ended.reason.value
            lost = ended.reason is Reason.LOST
            result["message"] = LOST_WORDS if lost else ended.message
        if process.terminal:
            result["pty_id"] = process.key
            await self.terminals.store_closed(process.key)
        if truncated:
            result["output_ref"] = await self._keep_whole(process.key)
            result["total_bytes"] = output.total
        unfinished = ended.failure is not None or ended.reason is Reason.LOST
        return ToolOutcome(result, is_error=unfinished)

    async def _keep_whole(self, key: str) -> str:
        client = await self.terminals.client()
        async with transcript_copy(client, key) as path:
            raw = await asyncio.to_thread(read_raw, path)
        blob = await asyncio.to_thread(self.store.blobs.put, raw[:KEPT_BYTES_MAX], "text/plain")
        return await self.store.awrite(lambda db: blobs.commit(db, blob))


def _fitting(text: str) -> str:
    """The end of the output that is small as JSON too: control characters take six bytes there."""
    while len(json.dumps(text, ensure_ascii=False).encode()) > JSON_BYTES_MAX:
        text = text[len(text) // 8 + 1 :]
    return text


def cage_of(spec: AgentSpec) -> dict[str, Any] | None:
    """The cage as the terminal host takes it; None when it is disabled."""
    # Without the defaults: a host of an earlier release refuses keys that it does not know.
    return None if spec.cage == "disabled" else spec.cage.model_dump(exclude_defaults=True)


def let_in(spec: AgentSpec) -> dict[str, str]:
    """The variables that the agent's cage lets in: they come from here, the host has none."""
    return {} if spec.cage == "disabled" else given_by_name(spec.cage.env, os.environ)


def surroundings(
    session: SessionRow, agent: AgentSpec, owner: Owner, config: Config
) -> dict[str, Any]:
    """Where and as whom the agent's programs run: fields of a SpawnRequest, the same for all."""
    return {
        "session_id": session.id,
        "cwd": session.working_directory,
        "project": owner.project_folder or None,
        "unix_user": config.operators.unix_user.get(owner.operator),
        "cage": cage_of(agent),
        "env": let_in(agent),
    }


def spawn_request(
    request: ToolRequest, arguments: ShellArguments, below: str, *, owner: Owner, config: Config
) -> SpawnRequest:
    """The process of the call; what the arguments leave open is the agent's or the tool's own."""
    agent, terminal = request.agent, arguments.terminal
    return SpawnRequest(
        **surroundings(request.session, agent, owner, config),
        key=request.call.id,
        run_id=request.call.run_id,
        command=arguments.command,
        below=below,
        terminal=agent.terminal if terminal is None else terminal,
        timeout_s=arguments.timeout_s or SHELL.default_timeout_s,
        label=summary(SHELL.name, request.call.input),
        scrollback_lines=config.terminals.scrollback_lines,
    )


def below_root(root: str, asked: str | None) -> str | None:
    """The folder as a name below the root, by its letters; the terminal host follows its links."""
    if not asked:
        return ""
    if not Path(asked).is_absolute():
        return asked
    folder = Path(os.path.normpath(asked))
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else None
