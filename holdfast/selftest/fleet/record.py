"""What a fleet acknowledged, and the output that its commands were going to print."""

from __future__ import annotations

from holdfast.selftest.record import Record


class FleetRecord(Record):
    """Filled by many threads at once, read when they are done."""

    def __init__(self) -> None:
        super().__init__()
        # How many numbered lines a command with this word prints.
        self.outputs: dict[str, int] = {}

    def expect_output(self, word: str, lines: int) -> None:
        """A command that prints so many numbered lines was handed over."""
        with self._lock:
            self.outputs[word] = lines
