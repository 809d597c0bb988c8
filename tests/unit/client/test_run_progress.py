"""When `ask` may send its message, and when its run is over."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import ClientError, Frame
from holdfast.client.run_progress import RunProgress, ends_run

GAP = Frame("control", "closing", {"code": "resume_failed"})


@pytest.mark.parametrize(
    ("frame", "over"),
    [
        (Frame("events", "run.completed", {"run_id": "R"}), True),
        (Frame("events", "run.completed", {"run_id": "other"}), False),
        (Frame("events", "run.cancelled", {"run_id": "R"}), True),
        (Frame("events", "session.state", {"to_state": "paused"}), True),
        (Frame("events", "session.state", {"to_state": "idle"}), False),
        (Frame("control", "closing", {"code": "session_ended"}), True),
        (Frame("control", "closing", {"code": "resume_failed"}), False),
        (Frame("output", "delta", {"run_id": "R"}), False),
    ],
)
def test_what_ends_a_run(frame: Frame, over: bool) -> None:
    assert ends_run(frame, "R") is over


def welcome(active_run: str | None) -> Frame:
    return Frame("control", "welcome", {"session": {"active_run": active_run}})


def accepted(state: str) -> dict[str, Any]:
    return {"run": {"id": "R"}, "session": {"state": state}}


def test_the_message_is_sent_once_when_the_stream_is_live() -> None:
    progress = RunProgress()
    assert not progress.is_over(welcome(None))
    assert progress.may_send(welcome(None))
    frame = progress.accepted(accepted("running"))
    assert (frame.channel, frame.type, frame.payload) == (
        "control",
        "accepted",
        accepted("running"),
    )
    assert not progress.is_over(frame)
    assert not progress.may_send(welcome("R"))


def test_a_queued_message_is_not_waited_for() -> None:
    progress = RunProgress()
    assert progress.is_over(progress.accepted(accepted("queued")))


def test_a_stream_that_ends_before_the_message_was_sent_is_an_error() -> None:
    with pytest.raises(ClientError, match=r"not sent.*not_found"):
        RunProgress().may_send(Frame("control", "closing", {"code": "not_found"}))


@pytest.mark.parametrize(("active_run", "over"), [("R", False), (None, True), ("later", True)])
def test_after_missed_frames_the_welcome_tells_whether_the_run_goes_on(
    active_run: str | None, over: bool
) -> None:
    progress = RunProgress()
    progress.accepted(accepted("running"))
    assert not progress.is_over(GAP)
    assert progress.is_over(welcome(active_run)) is over


def test_after_a_plain_reconnect_the_end_of_the_run_is_still_to_come() -> None:
    progress = RunProgress()
    progress.accepted(accepted("running"))
    assert not progress.is_over(welcome(None))
    assert progress.is_over(Frame("events", "run.completed", {"run_id": "R"}, 7))
