"""An external command as a compactor or observer: one JSON object in, one out, within its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

ANSWER_BYTES_MAX = 1024 * 1024
COMMAND_CHARS_SHOWN = 80
# Keys and tokens of this process are nothing that a plugin needs.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER")


class PluginFailed(Exception):
    """The command did not answer as it should; the words say how."""


async def run_plugin(
    command: str, question: dict[str, Any], *, folder: Path, timeout_s: float
) -> dict[str, Any]:
    """Run `command` in `folder` with the question on its stdin; its answer from stdout."""
    shown = command[:COMMAND_CHARS_SHOWN]
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        raise PluginFailed(f"{shown!r} could not be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout_s):
            raw = await _exchange(process, json.dumps(question).encode("utf-8", "replace"))
            code = await process.wait()
    except TimeoutError:
        raise PluginFailed(f"{shown!r} took longer than {timeout_s:.0f} s") from None
    finally:
        await _end(process)
    if code != 0:
        raise PluginFailed(f"{shown!r} ended with code {code}")
    return _answer(shown, raw)


async def _exchange(process: asyncio.subprocess.Process, question: bytes) -> bytes:
    """Write and read at once: a command may answer before it has read everything."""
    _, answer = await asyncio.gather(_tell(process, question), _hear(process))
    return answer


async def _tell(process: asyncio.subprocess.Process, question: bytes) -> None:
    assert process.stdin is not None, "opened with pipes"
    # A command need not read its question: a pipe that it closed early is no trouble.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(question)
        await process.stdin.drain()
    process.stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()


async def _hear(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None, "opened with pipes"
    heard = b""
    while piece := await process.stdout.read(65_536):
        heard += piece
        if len(heard) > ANSWER_BYTES_MAX:
            raise PluginFailed("the command answered more than 1 MiB")
    return heard


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it with its children, unless it is over: then its number may be another's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    # Unread pipes, or a child that got away with them, would keep `wait` waiting; asyncio has no
    # public way to let go of them.
    process._transport.close()  # type: ignore[attr-defined]
    await process.wait()


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
