"""Exchanges of several requests as generators: they yield what to do, the client sends it.

A generator gets the JSON of each answer, or the ClientError thrown into it. So paging and
repeating are written once, for the client that blocks and for the one that awaits.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from holdfast.client.errors import ClientError, Refused, Unreachable
from holdfast.client.requests import Json, Request

PAGE = 500
REPEAT_FOR_S, REPEAT_EVERY_S = 30.0, 0.25
RUN_LOOK_S = 0.05
RUN_OVER = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True)
class Pause:
    """Wait before the next request."""

    seconds: float


@dataclass(frozen=True)
class Result:
    """What the exchange came to."""

    value: Any


T = TypeVar("T")
Exchange: TypeAlias = Generator[Request | Pause, Json, T]
Outcome: TypeAlias = Json | ClientError


def proceed(exchange: Exchange[Any], outcome: Outcome) -> Request | Pause | Result:
    """The next thing to do after this outcome of the last; None begins the exchange."""
    try:
        if isinstance(outcome, ClientError):
            return exchange.throw(outcome)
        return exchange.send(outcome)
    except StopIteration as end:
        return Result(end.value)


def single(request: Request) -> Exchange[Json]:
    """One request, once."""
    return (yield request)


def items(path: str, params: Mapping[str, Any], items_max: int) -> Exchange[list[Json]]:
    """Every item of a list that has cursors, page after page, up to `items_max`."""
    found: list[Json] = []
    cursor: str | None = None
    while len(found) < items_max:
        limit = min(PAGE, items_max - len(found))
        page = yield Request("GET", path, params={**params, "limit": limit, "cursor": cursor})
        found += page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    return found


def messages(path: str, params: Mapping[str, Any]) -> Exchange[list[Json]]:
    """Every message, page after page; each page begins after the last message before it."""
    found: list[Json] = []
    since = params.get("since")
    while True:
        page = yield Request("GET", path, params={**params, "since": since, "limit": PAGE})
        found += page["items"]
        if len(page["items"]) < PAGE:
            return found
        since = page["items"][-1]["id"]


def repeated(request: Request) -> Exchange[Json]:
    """The request again, with its Idempotency-Key, while the server is away or restarts."""
    deadline = time.monotonic() + REPEAT_FOR_S
    while True:
        try:
            return (yield request)
        except (Refused, Unreachable) as error:
            passing = isinstance(error, Unreachable) or error.status == 503
            if not passing or time.monotonic() > deadline:
                raise
        yield Pause(REPEAT_EVERY_S)


def finished_run(path: str, timeout_s: float) -> Exchange[Json]:
    """The run once it is over; TimeoutError when that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        run = yield Request("GET", path)
        if run["state"] in RUN_OVER:
            return run
        if time.monotonic() > deadline:
            raise TimeoutError(f"run {run['id']} is still {run['state']}")
        yield Pause(RUN_LOOK_S)
