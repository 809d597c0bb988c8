"""Where a loop waits between two steps while its session is paused."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow


class Gate:
    """Open while the session runs."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open

    async def passed(self) -> None:
        """Return as soon as the next step may start."""
        if not self._is_open():
            await workflow.wait_condition(self._is_open)


def should_roll() -> bool:
    """Whether the server suggests to begin a new history."""
    return workflow.info().is_continue_as_new_suggested()
