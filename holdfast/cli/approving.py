"""Answers to calls that wait for a word, as they are typed: `y`, `s`, `p` or `n` and a text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from holdfast.cli.output import clean

HELP = "y allow · s [PATTERN] allow in this session · p [PATTERN] in this project · n [NOTE] deny"
DIFF_LINES_MAX = 60


@dataclass(frozen=True)
class Answer:
    """What was typed: the fields of the request."""

    decision: str
    remember: str | None = None
    text: str | None = None  # a pattern to remember, or a note to the model

    def fields(self) -> dict[str, Any]:
        """The named arguments of `Client.decide`."""
        if self.remember is not None:
            return {"remember": self.remember, "pattern": self.text}
        return {"note": self.text}


def read(line: str) -> Answer | None:
    """The answer in a line, or None when it is not one."""
    letter, _, text = line.strip().partition(" ")
    rest = text.strip() or None
    match letter:
        case "y" if rest is None:
            return Answer("allow")
        case "s":
            return Answer("allow", "session", rest)
        case "p":
            return Answer("allow", "project", rest)
        case "n":
            return Answer("deny", None, rest)
        case _:
            return None


def description(approval: Any) -> str:
    """What an operator must know before the answer; no value can drive the terminal."""
    who = "" if approval["agent_path"] == "primary" else f" by {approval['agent_path']}"
    lines = [f"? may it{who}: {clean(approval['title'])}", f"  in {clean(approval['cwd'])}"]
    if approval["command"] and approval["command"] != approval["title"]:
        lines += [f"  $ {clean(one)}" for one in approval["command"].splitlines()]
    if approval["reason"]:
        lines.append(f"  because: {clean(approval['reason'])}")
    if approval["uncaged"]:
        lines.append("  It would run WITHOUT a cage: this machine can build none.")
    shown = (approval["diff"] or "").splitlines()
    lines += [f"  {clean(one)}" for one in shown[:DIFF_LINES_MAX]]
    if len(shown) > DIFF_LINES_MAX:
        lines.append(f"  … and {len(shown) - DIFF_LINES_MAX} more lines of the diff")
    return "\n".join(lines)


def elsewhere(approval: Any) -> str:
    """How to answer from another terminal."""
    return f"  answer: holdfast approve {approval['id']} | holdfast deny {approval['id']}"


def is_interactive() -> bool:
    """Whether somebody can be asked here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Prompter:
    """Asks about each call that a stream tells of, where a person is there to answer."""

    def __init__(self, client: Any, renderer: Any) -> None:
        self.client = client
        self.renderer = renderer

    def look_at(self, frame: Any) -> None:
        """Ask when the frame says that a call waits; without a person, say how to answer."""
        if frame.channel != "events" or frame.type != "approval.requested":
            return
        approval = self.client.approval(frame.payload["approval_id"])
        if approval["state"] != "pending":
            return
        self.renderer.note(description(approval))
        if is_interactive():
            self._ask(approval)
        else:
            self.renderer.note(elsewhere(approval))

    def _ask(self, approval: Any) -> None:
        self.renderer.note(f"  {HELP}")
        while line := sys.stdin.readline():
            answer = read(line)
            if answer is None:
                self.renderer.note(f"  {HELP}")
                continue
            self.renderer.note(answered(self.client, approval, answer))
            return
        self.renderer.note(elsewhere(approval))  # the keyboard is closed


def answered(client: Any, approval: Any, answer: Answer) -> str:
    """Send the answer; how the approval stands then, in words."""
    from holdfast.client.errors import Refused

    try:
        now = client.decide(approval["id"], answer.decision, **answer.fields())
    except Refused as error:
        return f"! {error}"
    return f"· {now['state']}"
