"""What can go wrong with a terminal, each by its own code, on both sides of the socket."""

from typing import Any


class TerminalError(Exception):
    """Expected trouble around the terminal host; `code` is stable, the message is for people."""

    code = "terminal_error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class HostUnavailable(TerminalError):
    """No terminal host answers at the socket, and none could be started."""

    code = "host_unavailable"


class HostLost(TerminalError):
    """The connection to the terminal host broke while an answer was due; asking again is safe."""

    code = "host_lost"


class HostRestarted(TerminalError):
    """The terminal host is in a later epoch than the caller believes; nothing was started."""

    code = "host_restarted"


class TranscriptMissing(TerminalError):
    """The process wrote output, and its transcript cannot be found: an error, not silence."""

    code = "transcript_missing"


class VersionMismatch(TerminalError):
    """Client and host have no protocol version in common."""

    code = "version_mismatch"


class BadRequest(TerminalError):
    """The host understood the frame but not what it asks for."""

    code = "bad_request"


class UnknownProcess(TerminalError):
    """No process was ever started under this key, or its record has expired."""

    code = "not_found"


class LimitReached(TerminalError):
    """The session already has as many live terminals as it may."""

    code = "limit"


class NotATerminal(TerminalError):
    """Input and sizes are only for processes that have a terminal."""

    code = "not_a_terminal"


class ProcessOver(TerminalError):
    """The process has ended; nothing can be written to it any more."""

    code = "process_over"


class InputFull(TerminalError):
    """The program does not read its input and the queue for it is full."""

    code = "input_full"


class SpawnFailed(TerminalError):
    """The program could not be started: no such directory, no such program."""

    code = "spawn_failed"


class BadCage(TerminalError):
    """The cage's configuration is not valid."""

    code = "bad_cage"


class CageUnavailable(TerminalError):
    """This machine cannot build a cage; the message says what to install or allow."""

    code = "cage_unavailable"


class CageSpawnFailed(TerminalError):
    """The cage could not be set up around the program, so the program never ran."""

    code = "cage_spawn_failed"


class SuspendFailed(TerminalError):
    """Some process of the tree could not be brought to a stop; none is reported as suspended."""

    code = "suspend_failed"


BY_CODE = {error.code: error for error in TerminalError.__subclasses__()}


def from_wire(error: dict[str, Any]) -> TerminalError:
    """The exception that the host's error answer stands for."""
    kind = BY_CODE.get(str(error.get("code")), TerminalError)
    return kind(str(error.get("message", "")), **error.get("details", {}))


def to_wire(error: TerminalError) -> dict[str, Any]:
    """The error answer that stands for this exception."""
    return {"code": error.code, "message": error.message, "details": error.details}
