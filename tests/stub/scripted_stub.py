"""What every provider's stub has in common: a queue of answers, or the script in the message."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from holdfast.agent.conversation import Turn
from holdfast.agent.script import Step, next_step, parse_element
from holdfast.agent.tokens import estimate_turns
from tests.stub.http_stub import HttpStub, Recorded


class ScriptedStub(HttpStub):
    """A stub that knows what to answer, in the dialect of its subclass."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[Step] = deque()
        self._lock = threading.Lock()
        self._errors_given: Counter[tuple[str, int]] = Counter()

    def play(self, *elements: dict[str, Any]) -> None:
        """Queue the answers to the next requests, before any script in a message."""
        with self._lock:
            self._queue.extend(parse_element(element) for element in elements)

    @property
    def calls(self) -> list[Recorded]:
        """The requests for an answer so far, oldest first."""
        return [request for request in self.requests if request.method == "POST"]

    def next_step(self, turns: list[Turn]) -> Step:
        """What to answer now."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
        if (step := next_step(turns)) is not None:
            return step
        said = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
        return Step(say=f"You said: {said}", chunks=4)

    def overflows(self, step: Step, turns: list[Turn]) -> bool:
        """Whether this answer is the provider's context-length error."""
        limit = step.overflow_above
        return step.error == "overflow" or (limit is not None and estimate_turns(turns) > limit)

    def used_up(self, step: Step) -> bool:
        """Whether an error that is scripted for so many times was given that often."""
        if step.times is None:
            return False
        self._errors_given[step.key, step.index] += 1
        return self._errors_given[step.key, step.index] > step.times
