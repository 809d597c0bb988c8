"""What travels between the workflow and its steps when an operator is asked about a call."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.commands import Command

# A subagent's workflow is told that one of its calls was answered.
ANSWERED_SIGNAL = "approval_answered"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call waits for this approval; the words are in the database."""

    approval_id: str
    expires_at: int | None = None  # ms


@dataclass(frozen=True, kw_only=True)
class Decide(Command):
    """An operator's answer; note and pattern lie in a blob, for they are content."""

    approval_id: str = ""
    decision: str = ""  # allow | deny
    remember: str | None = None  # session | project
    words_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class DecideStep:
    """Store an answer, or that none came in time; the first one wins."""

    session_id: str
    approval_id: str
    decision: str  # allow | deny | expire
    user_id: str = ""
    remember: str | None = None
    words_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Decided:
    """How the approval stands after an answer, and the subagent whose call it is about."""

    state: str
    invocation_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Whether a call may be made: it waits for an approval, is allowed, or was closed."""

    allowed: bool = False
    asked: Asked | None = None
