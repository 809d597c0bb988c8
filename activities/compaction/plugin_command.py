"""A command as a compactor or observer, in the agent's cage: one JSON object in, one out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from activities.terminals import Terminals
from holdfast.domain.ids import new_id
from holdfast.terminal.client import Exit, Reason, SpawnRequest, TerminalClient
from holdfast.terminal.errors import TerminalError

ANSWER_BYTES_MAX = 1024 * 1024
COMMAND_CHARS_SHOWN = 80
QUESTIONS = "questions"
# The host stops the command in time; ours is for a host that does not.
MORE_S = 5.0
LEFT_BEHIND_S = 3600.0
# What the command says beside its answer is nothing of ours.
QUIETLY = "exec 2>/dev/null\n"


class PluginFailed(Exception):
    """The command did not answer as it should; the words say how."""


async def run_plugin(
    terminals: Terminals,
    command: str,
    question: dict[str, Any],
    *,
    where: Mapping[str, Any],
    timeout_s: float,
) -> dict[str, Any]:
    """Run `command` with the question on its stdin; its answer.

    `where` is what `surroundings` says of the agent: it runs as the agent's own commands do.
    """
    shown = command[:COMMAND_CHARS_SHOWN]
    key = f"compaction-{new_id()}"
    with _kept(terminals.state_dir / QUESTIONS / key, question) as path:
        request = SpawnRequest(
            **where,
            key=key,
            command=QUIETLY + command,
            timeout_s=timeout_s,
            label=f"compaction: {shown}",
            stdin=str(path),
        )
        try:
            async with asyncio.timeout(timeout_s + MORE_S):
                raw, ended = await _run(await terminals.client(), request)
        except TimeoutError:
            raise _late(shown, timeout_s) from None
        except TerminalError as error:
            raise PluginFailed(f"{shown!r} could not be started: {error}") from error
    if ended.reason is Reason.TIMEOUT:
        raise _late(shown, timeout_s)
    if ended.reason is not Reason.EXITED:
        raise PluginFailed(f"{shown!r} was ended: {ended.failure or ended.reason} {ended.message}")
    if ended.code != 0:
        raise PluginFailed(f"{shown!r} ended with code {ended.code}")
    return _answer(shown, raw)


async def _run(client: TerminalClient, request: SpawnRequest) -> tuple[bytes, Exit]:
    """All that the command says, and how it ended; it is over when this returns."""
    heard = b""
    try:
        await client.spawn(request)
        async for _, data in client.output(request.key):
            heard += data
            if len(heard) > ANSWER_BYTES_MAX:
                raise PluginFailed("the command answered more than 1 MiB")
        return heard, await client.wait(request.key)
    finally:
        await asyncio.shield(_end(client, request.key))


async def _end(client: TerminalClient, key: str) -> None:
    with contextlib.suppress(TerminalError):
        await client.kill(key, grace_s=0.0)
        await client.close(key)


@contextmanager
def _kept(path: Path, question: dict[str, Any]) -> Iterator[Path]:
    """The question as a file for as long as the command runs; no size is too large for one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _drop_left_behind(path.parent)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(json.dumps(question).encode("utf-8", "replace"))
        yield path
    finally:
        path.unlink(missing_ok=True)


def _drop_left_behind(folder: Path) -> None:
    """Questions of workers that were killed: no command runs for as long."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_BEHIND_S:
                path.unlink()


def _late(shown: str, timeout_s: float) -> PluginFailed:
    return PluginFailed(f"{shown!r} took longer than {timeout_s:.0f} s")


def _answer(shown: str, raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        return {}
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        raise PluginFailed(f"{shown!r} did not answer JSON") from None
    if not isinstance(answer, dict):
        raise PluginFailed(f"{shown!r} did not answer a JSON object")
    return answer
