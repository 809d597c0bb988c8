"""What the client may meet, and the exit codes that scripts can tell apart."""

from __future__ import annotations

from typing import Any

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNREACHABLE = 4
EXIT_QUEUED = 5
EXIT_PAUSED = 6
EXIT_MISCONFIGURED = 78


class ClientError(Exception):
    """Something the caller should read rather than a traceback."""

    exit_code = EXIT_FAILED


class BadArguments(ClientError):
    """What was typed cannot be understood."""

    exit_code = EXIT_USAGE


class Refused(ClientError):
    """The server answered no: its status, code and words."""

    exit_code = EXIT_REFUSED

    def __init__(self, status: int, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def as_json(self) -> dict[str, Any]:
        """The error as the API sends it."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return {"error": error, "status": self.status}


class Unreachable(ClientError):
    """Nobody answers at the address."""

    exit_code = EXIT_UNREACHABLE

    def as_json(self) -> dict[str, Any]:
        """The error in the shape of the API's own."""
        return {"error": {"code": "unreachable", "message": str(self)}, "status": 0}
