"""From the exceptions of pydantic-ai and its clients to what the caller should do about them."""

from __future__ import annotations

import re

import httpx2
from pydantic_ai import exceptions as raised

from holdfast.agent.errors import (
    UNREACHABLE,
    ContextOverflow,
    PassingProviderError,
    PermanentProviderError,
    ProviderError,
)

RETRY_AFTER_S_MAX = 600.0
# Compatible servers report overflow as a plain 400 in words of their own.
_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|input (is too long|length)|exceeds? .{0,40}(context|n_ctx)|reduce the length",
    re.IGNORECASE,
)


def explain(error: Exception, *, started: bool) -> ProviderError:
    """The error to raise instead; `started` says that part of the answer had arrived."""
    if isinstance(error, raised.ModelContextWindowExceededError) or _overflows(error):
        return ContextOverflow(_words(error))
    if isinstance(error, raised.ModelHTTPError):
        return _by_status(error)
    if isinstance(error, (raised.ModelConnectionError, httpx2.TransportError)):
        return _disconnected(error, started=started)
    if isinstance(error, raised.ModelAPIError):
        return PassingProviderError("provider_error", _words(error), retry_after_s=_wait(error))
    if isinstance(error, raised.ContentFilterError):
        return PermanentProviderError("content_filtered", _words(error))
    if isinstance(error, raised.UserError):
        return PermanentProviderError("bad_request", _words(error))
    return PassingProviderError(
        "bad_answer", f"The provider's answer made no sense: {_words(error)}"
    )


def _by_status(error: raised.ModelHTTPError) -> ProviderError:
    status, words = error.status_code, _words(error)
    if isinstance(error, raised.ModelQuotaExceededError):
        return PermanentProviderError("quota_exceeded", words)
    if status == 429:
        return PassingProviderError("rate_limited", words, retry_after_s=_wait(error))
    if status in {401, 403}:
        return PermanentProviderError("authentication_failed", words)
    if status == 404:
        return PermanentProviderError("model_not_found", words)
    if status in {408, 409, 425} or status >= 500:
        return PassingProviderError("provider_error", words, retry_after_s=_wait(error))
    return PermanentProviderError("bad_request", words)


def _disconnected(error: Exception, *, started: bool) -> ProviderError:
    if started:
        return PassingProviderError("stream_dropped", f"The answer broke off: {_words(error)}")
    return PassingProviderError("provider_unreachable", UNREACHABLE)


def _overflows(error: Exception) -> bool:
    if not isinstance(error, raised.ModelAPIError):
        return False
    if error.provider_error_code == "context_length_exceeded":
        return True
    status = getattr(error, "status_code", None)
    return status in {400, 413, 422} and bool(_OVERFLOW.search(_words(error)))


def _wait(error: raised.ModelAPIError) -> float | None:
    if error.retry_after is None:
        return None
    return min(max(error.retry_after, 0.0), RETRY_AFTER_S_MAX)


def _words(error: Exception) -> str:
    """The provider's own message where there is one, else the exception's."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(said, str) and said:
            status = getattr(error, "status_code", None)
            return f"{said} (status {status})" if status else said
    return str(error) or type(error).__name__
