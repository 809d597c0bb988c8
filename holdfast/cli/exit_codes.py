"""The exit codes of `holdfast`, so that scripts can tell one kind of trouble from another."""

from __future__ import annotations

from holdfast.client.errors import ClientError, Refused, Unreachable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNREACHABLE = 4
EXIT_QUEUED = 5
EXIT_PAUSED = 6
EXIT_MISCONFIGURED = 78  # the supervisor does not restart a part after this one


class BadArguments(ClientError):
    """What was typed cannot be understood."""


EXIT_CODES: dict[type[ClientError], int] = {
    BadArguments: EXIT_USAGE,
    Refused: EXIT_REFUSED,
    Unreachable: EXIT_UNREACHABLE,
}


def exit_code(error: ClientError) -> int:
    """The exit code of a command that raised this error."""
    return EXIT_CODES.get(type(error), EXIT_FAILED)
