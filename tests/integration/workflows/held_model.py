"""Model calls that begin and do not answer before the test lets them: no test races a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from activities import model_calls
from holdfast.agent.conversation import ModelAnswer
from holdfast.agent.providers import complete


class HeldModel:
    """Holds the model calls of a worker in this process, all but the first `let_through`.

    An exception in `failures` is raised instead of the next call, held or not.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, let_through: int = 0) -> None:
        self.failures: list[Exception] = []
        self.holds = asyncio.Event()
        self._released = asyncio.Event()
        self._left = let_through
        monkeypatch.setattr(model_calls, "complete", self._held)

    def release(self) -> None:
        """Let every call answer, from now on."""
        self._released.set()

    async def _held(self, *given: Any, **named: Any) -> ModelAnswer:
        if self.failures:
            raise self.failures.pop()
        if self._left:
            self._left -= 1
        else:
            self.holds.set()
            await self._released.wait()
        return await complete(*given, **named)
