"""AsyncClient called like Client, so that one test runs the same story through both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, cast

from holdfast import AsyncClient, AsyncSessionStream, Client


class BlockingClient:
    """Runs what AsyncClient returns to its end, in an event loop of its own."""

    def __init__(self, client: AsyncClient | AsyncSessionStream, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._blocking(found) if callable(found) else found

    def __iter__(self) -> Generator[Any, None, None]:
        assert isinstance(self._client, AsyncSessionStream)
        return self._items(aiter(self._client))

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            value = method(*arguments, **options)
            if inspect.iscoroutine(value):
                return self._runner.run(value)
            if isinstance(value, AsyncSessionStream):
                return BlockingClient(value, self._runner)
            return self._items(value)

        return call

    def _items(self, generator: AsyncGenerator[Any, None]) -> Generator[Any, None, None]:
        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(generator)
            except StopAsyncIteration:
                return False, None

        try:
            while (step := self._runner.run(following()))[0]:
                yield step[1]
        finally:
            self._runner.run(generator.aclose())


def blocking(client: AsyncClient, runner: asyncio.Runner) -> Client:
    """The client, for tests that are typed for Client."""
    return cast(Client, BlockingClient(client, runner))
