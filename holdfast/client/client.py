"""The Python client: create sessions, send messages, stream answers with resume."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any, Self

import httpx2

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
from holdfast.client.stream import SessionStream


class Client(Operations[Json, list[Json], SessionStream]):
    """One operator's view of one server. Use it as a context manager, or call `close`."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0) -> None:
        super().__init__(url, token, timeout_s=timeout_s)
        self.http = httpx2.Client(**connection_options(self.url, token, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self.http.close()

    def lines(self, path: str, **params: Any) -> Generator[str, None, None]:
        """A long answer line by line, as it comes."""
        splitter, request = LineSplitter(), Request("GET", path, params=params)
        with (
            transport_errors_as_unreachable(self.url),
            self.http.stream(**request.arguments()) as answer,
        ):
            if answer.is_error:
                answer.read()
                answer_content(answer)
            for chunk in answer.iter_bytes():
                yield from splitter.feed(chunk)
            yield from splitter.rest()

    def ask(self, session_id: str, content: str, **options: Any) -> Generator[Frame, None, None]:
        """Send a message and yield the frames of its run until that run is over.

        The first frame is `control.accepted` with what the POST answered.
        """
        progress = RunProgress()
        with contextlib.closing(iter(self.stream(session_id))) as frames:
            for frame in frames:
                if progress.may_send(frame):
                    frame = progress.accepted(self.send(session_id, content, **options))
                yield frame
                if progress.is_over(frame):
                    return

    def _stream(self, socket: SessionSocket) -> SessionStream:
        return SessionStream(socket)

    def _run(self, exchange: Exchange[Any]) -> Any:
        outcome: Outcome = None
        while not isinstance(step := proceed(exchange, outcome), Result):
            outcome = self._perform(step)
        return step.value

    def _perform(self, step: Request | Pause) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            with transport_errors_as_unreachable(self.url):
                return answer_content(self.http.request(**step.arguments()))
        except ClientError as error:
            return error
