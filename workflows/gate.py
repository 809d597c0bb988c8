"""Where a loop waits between two steps while its session is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow


class Gate:
    """Open while the session runs; gone once the loop is stopped."""

    def __init__(
        self, is_open: Callable[[], bool], is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_open = is_open
        self._is_stopped = is_stopped

    async def passed(self) -> None:
        """Return as soon as the next step may start; CancelledError when none may any more.

        A cancelled task alone is not enough: when the step under way ends well all the same, its
        result takes the place of the cancellation, and the loop would go on.
        """
        if not self._may_look():
            await workflow.wait_condition(self._may_look)
        if self._is_stopped():
            raise asyncio.CancelledError("stopped")

    def _may_look(self) -> bool:
        return self._is_open() or self._is_stopped()
