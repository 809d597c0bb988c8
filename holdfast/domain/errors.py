"""Expected trouble, each with its HTTP status and code; anything else is a defect."""

from __future__ import annotations

from typing import Any, ClassVar


class Refusal(Exception):
    """An answer of no that its reader can act on."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "bad_request"

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class BadRequest(Refusal):
    """The request makes no sense as it stands."""


class ValidationFailed(Refusal):
    """A field of the request is missing, unknown or out of bounds."""

    code = "validation_failed"


class Unauthenticated(Refusal):
    """Nobody we know."""

    status = 401
    code = "unauthenticated"


class Forbidden(Refusal):
    """Known, but not allowed."""

    status = 403
    code = "forbidden"


class NotFound(Refusal):
    """No such thing, or it is another operator's: the answer is the same."""

    status = 404
    code = "not_found"


class Conflict(Refusal):
    """The thing is in another state than the request needs."""

    status = 409
    code = "conflict"


class ActionNotAllowed(Conflict):
    """The session's state has no such edge in the lifecycle table."""

    def __init__(self, action: str, state: str) -> None:
        super().__init__(f"cannot {action} while {state}", {"action": action, "state": state})


class Gone(Refusal):
    """It was there, and is over."""

    status = 410
    code = "gone"


class SessionOver(Gone):
    """The session has ended or failed."""

    def __init__(self, action: str, state: str) -> None:
        super().__init__(
            f"cannot {action}: the session is {state}", {"action": action, "state": state}
        )


class PayloadTooLarge(Refusal):
    """More bytes than the limit."""

    status = 413
    code = "payload_too_large"


class DslInvalid(Refusal):
    """The project file is broken; the details say where."""

    status = 422
    code = "dsl_invalid"


class RateLimited(Refusal):
    """Too many, too fast."""

    status = 429
    code = "rate_limited"


class NoHost(Conflict):
    """No machine that is up has the folder that the session works in."""

    code = "no_host"


class HostIsAway(Refusal):
    """The machine of the session does not answer; the same request may work when it is back."""

    status = 503
    code = "host_away"


class Unavailable(Refusal):
    """A part of ours does not answer just now; the same request may work later."""

    status = 503
    code = "unavailable"


def _kinds(root: type[Refusal]) -> list[type[Refusal]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


def refusal_from(
    code: str | None, message: str, details: dict[str, Any] | None = None
) -> Refusal | None:
    """The refusal that travelled as `code` through a Temporal failure; None for another failure."""
    for kind in _kinds(Refusal):
        if kind.code == code:
            refusal = kind.__new__(kind)
            Refusal.__init__(refusal, message, details)
            return refusal
    return None
