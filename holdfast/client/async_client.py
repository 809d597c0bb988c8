"""`Client` for asyncio: the same methods, to be awaited or iterated with `async for`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Self

import httpx2

from holdfast.client.async_stream import AsyncSessionStream
from holdfast.client.errors import ClientError
from holdfast.client.exchanges import Exchange, Outcome, Pause, Result, proceed
from holdfast.client.frames import Frame
from holdfast.client.operations import Operations
from holdfast.client.requests import (
    Json,
    LineSplitter,
    Request,
    answer_content,
    connection_options,
    transport_errors_as_unreachable,
)
from holdfast.client.run_progress import RunProgress
from holdfast.client.session_socket import SessionSocket


class AsyncClient(
    Operations[Coroutine[Any, Any, Json], Coroutine[Any, Any, list[Json]], AsyncSessionStream]
):
    """One operator's view of one server. Use it with `async with`, or await `close`."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0) -> None:
        super().__init__(url, token, timeout_s=timeout_s)
        self.http = httpx2.AsyncClient(**connection_options(self.url, token, timeout_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the connections."""
        await self.http.aclose()

    async def lines(self, path: str, **params: Any) -> AsyncGenerator[str, None]:
        """A long answer line by line, as it comes."""
        splitter, request = LineSplitter(), Request("GET", path, params=params)
        with transport_errors_as_unreachable(self.url):
            async with self.http.stream(**request.arguments()) as answer:
                if answer.is_error:
                    await answer.aread()
                    answer_content(answer)
                async for chunk in answer.aiter_bytes():
                    for line in splitter.feed(chunk):
                        yield line
                for line in splitter.rest():
                    yield line

    async def ask(
        self, session_id: str, content: str, **options: Any
    ) -> AsyncGenerator[Frame, None]:
        """Send a message and yield the frames of its run until that run is over.

        The first frame is `control.accepted` with what the POST answered.
        """
        progress = RunProgress()
        async with contextlib.aclosing(aiter(self.stream(session_id))) as frames:
            async for frame in frames:
                if progress.may_send(frame):
                    frame = progress.accepted(await self.send(session_id, content, **options))
                yield frame
                if progress.is_over(frame):
                    return

    def _stream(self, socket: SessionSocket) -> AsyncSessionStream:
        return AsyncSessionStream(socket)

    async def _run(self, exchange: Exchange[Any]) -> Any:
        outcome: Outcome = None
        while not isinstance(step := proceed(exchange, outcome), Result):
            outcome = await self._perform(step)
        return step.value

    async def _perform(self, step: Request | Pause) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            with transport_errors_as_unreachable(self.url):
                return answer_content(await self.http.request(**step.arguments()))
        except ClientError as error:
            return error
