"""One message and its run in the frames of a stream: when to send it, when the run is over."""

from __future__ import annotations

from holdfast.client.errors import ClientError
from holdfast.client.frames import Frame
from holdfast.client.requests import Json


class RunProgress:
    """Follows the frames of `ask`; it is shown every frame, in order."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self._missed_frames = False

    def may_send(self, frame: Frame) -> bool:
        """Whether the stream is live from this frame on, so that no answer can be missed."""
        if frame.is_last and self.run_id is None:
            raise ClientError(f"the message was not sent: the stream is over ({frame.payload})")
        return frame.type == "welcome" and self.run_id is None

    def accepted(self, answer: Json) -> Frame:
        """The frame that tells what the POST of the message answered."""
        self.run_id = answer["run"]["id"] if answer["run"] is not None else None
        return Frame("control", "accepted", answer)

    def is_over(self, frame: Frame) -> bool:
        """Whether nothing of the run follows this frame."""
        if frame.type == "accepted":
            # One that waits has no run yet.
            return self.run_id is None or bool(frame.payload["session"]["state"] == "queued")
        if self.run_id is None:
            return False
        if frame.is_gap:
            self._missed_frames = True
        if frame.type == "welcome" and self._missed_frames:
            # The end of the run may be among the missed frames.
            self._missed_frames = False
            return _active_run(frame) != self.run_id
        return ends_run(frame, self.run_id)


def ends_run(frame: Frame, run_id: str) -> bool:
    """Whether this frame says that the run is over, or will not go on by itself."""
    if frame.type in {"run.completed", "run.cancelled"}:
        return frame.payload.get("run_id") == run_id
    if frame.type == "session.state":
        return frame.payload.get("to_state") in {"paused", "ended", "failed"}
    return frame.is_last


def _active_run(welcome: Frame) -> str | None:
    found: str | None = (welcome.payload.get("session") or {}).get("active_run")
    return found
