"""One spelling of a value, so that equal values have equal hashes."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, no spaces and no escapes that are not needed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def sha256(data: bytes) -> str:
    """The hash that names blobs, heads, prompts and events."""
    return hashlib.sha256(data).hexdigest()
