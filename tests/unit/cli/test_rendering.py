"""What the terminal shows of a session: every word once, and nothing that drives the terminal."""

from __future__ import annotations

import pytest

from holdfast.cli.output import clean
from holdfast.cli.rendering import Renderer
from holdfast.client.frames import Frame


def delta(message_id: str, text: str) -> Frame:
    return Frame("output", "delta", {"message_id": message_id, "text": text}, 1)


def message(message_id: str, text: str) -> Frame:
    content = {"id": message_id, "role": "primary", "content": text}
    return Frame("output", "message", {"message": content}, 2)


def test_a_message_that_was_streamed_is_not_written_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    renderer = Renderer()
    for frame in (delta("m", "Hel"), delta("m", "lo"), message("m", "Hello")):
        renderer.show(frame)
    renderer.show(message("m", "Hello"))
    assert capsys.readouterr().out == "Hello\n"


def test_what_was_not_streamed_of_a_message_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer()
    for frame in (delta("m", "Hel"), message("m", "Hello")):
        renderer.show(frame)
    assert capsys.readouterr().out == "Hello\n"


def test_two_messages_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer()
    for frame in (delta("m", "one"), delta("n", "two"), message("n", "two")):
        renderer.show(frame)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_tool_calls_and_states_go_beside_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer()
    call = {"tool_name": "shell", "input": {"command": "make   test"}}
    result = {"tool_name": "shell", "output": {"exit_code": 2, "duration_ms": 1500}}
    renderer.show(delta("m", "Look:"))
    renderer.show(Frame("output", "tool_call", call, 2))
    renderer.show(Frame("output", "tool_result", result, 3))
    renderer.show(Frame("events", "session.state", {"from_state": "running", "to_state": "idle"}))
    shown = capsys.readouterr()
    assert shown.out == "Look:\n"
    assert shown.err.splitlines() == [
        "▸ shell: make test",
        "◂ shell: exit code 2 after 1.5 s",
        "· running → idle",
    ]


def test_control_characters_never_reach_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x07\n\tc\x9b") == "a\ufffd[2Jb\ufffd\n\tc\ufffd"


def test_a_note_in_the_middle_of_an_answer_leaves_text_that_goes_elsewhere_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    renderer = Renderer()
    renderer.show(delta("m", "You said: go"))
    renderer.note("· idle → running")
    renderer.show(delta("m", "od morning"))
    shown = capsys.readouterr()
    assert shown.out == "You said: good morning"
    assert shown.err == "· idle → running\n"
