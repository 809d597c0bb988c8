"""Takes secrets out of a text that is going to be shown to others."""

from __future__ import annotations

import re
from typing import Any

MARK = "[redacted]"

_WHOLE = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \b(?:sk|pk|rk)-(?:ant-|proj-|live-|test-)?[A-Za-z0-9_-]{16,}
    | \b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{30,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | \bhf_[A-Za-z0-9]{20,}
    """,
    re.VERBOSE | re.DOTALL,
)
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}")
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?=@)")
_NAMED = re.compile(
    r"""(?ix)
    (\b[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)
     ["']?\s*[:=]\s*)
    (?:"[^"\n]{3,}"|'[^'\n]{3,}'|[^\s"',;&}\]]{3,})
    """
)


def redact(text: str) -> str:
    """The text without what looks like a secret: keys, tokens, passwords by their name."""
    text = _WHOLE.sub(MARK, text)
    text = _BEARER.sub(rf"\1{MARK}", text)
    text = _IN_URL.sub(rf"\1{MARK}", text)
    return _NAMED.sub(rf"\1{MARK}", text)


def redact_all(value: Any) -> Any:
    """A JSON value with every text in it redacted; keys, ids and numbers stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_all(item) for item in value]
    if isinstance(value, dict):
        return {key: redact_all(item) for key, item in value.items()}
    return value
