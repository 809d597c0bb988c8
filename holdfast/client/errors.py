"""The errors of the client: the server refused, or nobody answered."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """Expected trouble: its message is for the caller to read, instead of a traceback."""


class Refused(ClientError):
    """The server refused the request; `status`, `code`, `message` and `details` say why."""

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
    """No server answers at the address."""

    def as_json(self) -> dict[str, Any]:
        """The error in the shape of the API's own."""
        return {"error": {"code": "unreachable", "message": str(self)}, "status": 0}
