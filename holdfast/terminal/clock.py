"""The time a process has had: it stands still while the process is suspended."""

import time


class RunClock:
    """Seconds since the start, less the time in suspension."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._suspended_since: float | None = None
        self._suspended_s = 0.0

    def pause(self) -> None:
        """Stand still."""
        if self._suspended_since is None:
            self._suspended_since = time.monotonic()

    def proceed(self) -> None:
        """Go on."""
        if self._suspended_since is not None:
            self._suspended_s += time.monotonic() - self._suspended_since
            self._suspended_since = None

    @property
    def elapsed_s(self) -> float:
        """What counts against timeouts."""
        now = self._suspended_since or time.monotonic()
        return now - self._started - self._suspended_s
