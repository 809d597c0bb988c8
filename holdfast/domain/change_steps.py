"""What a session changed in its folder: the question, and where its answer is kept."""

from __future__ import annotations

from dataclasses import dataclass

SHOW = "show"


@dataclass(frozen=True, kw_only=True)
class ChangesStep:
    """Compare the folder now with how it was: at the session's `start`, before its last `run`, or
    at a checkpoint. With `diff` the answer is a unified diff, of one `path` or of all."""

    session_id: str
    since: str = "start"
    checkpoint_id: str | None = None
    diff: bool = False
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class ChangesFound:
    """The blob with the answer; nothing refers to it, so the orphan sweep deletes it in a day."""

    blob_id: str


@dataclass(frozen=True)
class ChangesStart:
    """Whose changes the workflow shows."""

    session_id: str


def workflow_id(session_id: str) -> str:
    """The id of the workflow that shows the changes of a session."""
    return f"changes-{session_id}"
