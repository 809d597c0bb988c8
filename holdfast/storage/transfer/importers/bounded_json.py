"""JSON of strangers: counted before it is parsed, so that small text never becomes large memory."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

from holdfast.domain.errors import BadRequest, PayloadTooLarge

# A parsed object takes some 200 bytes, a value some 60: a document at these limits takes 300 MB.
CONTAINERS_MAX = 500_000
VALUES_MAX = 3_000_000
_TOO_DEEP = "recursion limit exceeded"
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# So many texts at once: to cut them out takes memory for each.
_RUN = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+"){1,5000}+', re.DOTALL)


class NotJson(ValueError):
    """The bytes are no JSON value."""


def parse(data: bytes) -> Any:
    """The value, or NotJson; PayloadTooLarge and BadRequest when it would take too much."""
    check(data)
    try:
        return from_json(data, allow_inf_nan=True)
    except ValueError as error:
        if _TOO_DEEP in str(error):
            raise BadRequest("a document has at most 200 levels of objects and lists") from None
        raise NotJson(str(error)[:200]) from None


def check(data: bytes) -> None:
    """Refuse a text with too many values; nothing is parsed for that."""
    if _containers(data) <= CONTAINERS_MAX and data.count(b",") <= VALUES_MAX:
        return
    bare = _without_strings(data)
    if _containers(bare) > CONTAINERS_MAX:
        raise PayloadTooLarge(f"at most {CONTAINERS_MAX} objects and lists in one document")
    if bare.count(b",") > VALUES_MAX:
        raise PayloadTooLarge(f"at most {VALUES_MAX} values in one document")


def _containers(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _without_strings(data: bytes) -> bytes:
    parts, at = [], 0
    while (run := _RUN.match(data, at)) is not None:
        parts.append(_STRINGS.sub(b"", data[at : run.end()]))
        at = run.end()
    return b"".join(parts)
