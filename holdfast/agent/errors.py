"""What can go wrong between us and a model, by what the caller should do about it."""

from __future__ import annotations

from holdfast.domain.errors import ValidationFailed

# K-135: the operator reads exactly this when the retries are used up.
UNREACHABLE = "Provider unreachable. Try again or check provider config."
MESSAGE_CHARS_MAX = 2000


class UnknownModel(ValidationFailed):
    """No alias and no configured provider has this name."""


class ProviderError(Exception):
    """A model call failed; `code` is stable, the message is for people and holds no secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message[:MESSAGE_CHARS_MAX])
        self.code = code
        self.message = message[:MESSAGE_CHARS_MAX]


class PermanentProviderError(ProviderError):
    """The same request would fail again: bad key, bad request, unknown model."""


class PassingProviderError(ProviderError):
    """The same request may work later; `retry_after_s` is the provider's own wish."""

    def __init__(self, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


class ContextOverflow(ProviderError):
    """The conversation is longer than the model's window: compact, then try once more."""

    def __init__(self, message: str) -> None:
        super().__init__("context_overflow", message)
