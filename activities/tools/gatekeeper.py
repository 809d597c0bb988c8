"""Whether a call may be made: by rules, by answers that are remembered, by an operator's word."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from activities.tools.requests import ALLOWED, ToolRequest, Verdict, asked
from holdfast.agent.tools.offering import refusal_at_dispatch
from holdfast.agent.tools.outcome import ToolOutcome, ToolProblem
from holdfast.agent.tools.specs import BY_NAME, GrepArguments, ShellArguments, SubagentArguments
from holdfast.agent.tools.summaries import summary
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.ids import new_id
from holdfast.domain.permissions.command_lines import parsed
from holdfast.domain.permissions.events import PermissionApplied
from holdfast.domain.permissions.globs import ANY
from holdfast.domain.permissions.rules import (
    ASKED_UNCAGED,
    Call,
    Effect,
    Judgement,
    default_effect,
    judge,
)
from holdfast.storage.approvals import approvals, permissions
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables_approvals import Approval
from holdfast.storage.log import events
from holdfast.storage.sessions import admission, attention, tool_calls

NOT_LOOKED_AT = "nobody has looked whether this machine can build a cage"
BY_OPERATOR = "The operator denied this call, so it was not made."
TOO_LATE = "Nobody answered in time whether this call may be made, so it was not made."
NOT_HERE = "This call needs an operator's word, which this run cannot wait for. It was not made."
NOBODY_WAITS = ToolOutcome({"error": NOT_HERE}, is_error=True)
NO_WAY_ROUND = "Do not try to reach the same in another way."


def needs_a_cage(tool_name: str) -> bool:
    """Whether the tool is asked about where there is no cage, so that somebody must look."""
    spec = BY_NAME.get(tool_name)
    return spec is not None and spec.kind in ASKED_UNCAGED


def verdict(db: Db, request: ToolRequest, *, trouble: str | None) -> Verdict:
    """Judge a call; `trouble` says why its machine can build no cage."""
    spec = BY_NAME.get(request.call.tool_name)
    if spec is None or refusal_at_dispatch(spec.name, request.caller) is not None:
        return ALLOWED  # refused at its dispatch, so nobody need be asked
    uncaged = trouble is not None and request.agent.cage != "disabled"
    default = default_effect(spec.kind, caged=not uncaged)
    rules = request.project_file.rules(request.call.caller)
    remembered = permissions.holding(db, request.session)
    bare = Call(tool=spec.name, kind=spec.kind)
    if default is Effect.ALLOW and not any(one.concerns(bare) for one in (*rules, *remembered)):
        return ALLOWED
    try:
        arguments = spec.parse(asked(request.call))
    except ToolProblem:
        return ALLOWED  # as above
    call = described(spec, arguments, request.session.working_directory)
    judged = judge(call, rules, default=default, remembered=remembered)
    return _answered(db, request, judged, uncaged=uncaged and spec.kind in ASKED_UNCAGED)


def described(spec: ToolSpec, arguments: Any, folder: str) -> Call:
    """The call as rules see it."""
    if isinstance(arguments, ShellArguments):
        return Call(tool=spec.name, kind=spec.kind, command=parsed(arguments.command))
    if isinstance(arguments, SubagentArguments):
        return Call(tool=spec.name, kind=spec.kind, targets=(arguments.name,))
    path = getattr(arguments, "path", None)
    targets = () if path is None else path_forms(path, folder)
    if isinstance(arguments, GrepArguments):
        targets = _below(targets)  # it shows what is in any file there
    return Call(tool=spec.name, kind=spec.kind, targets=targets)


def path_forms(path: str, folder: str) -> tuple[str, ...]:
    """The ways in which a rule may name a path: below the working directory, and absolute."""
    whole = os.path.normpath(PurePosixPath(folder) / path)
    try:
        return (str(PurePosixPath(whole).relative_to(folder)), whole)
    except ValueError:
        return (whole,)


def _below(forms: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(ANY if one == "." else f"{one}{ANY}" for one in forms)


def _answered(db: Db, request: ToolRequest, judged: Judgement, *, uncaged: bool) -> Verdict:
    """The verdict of the rules, or of the operator who was asked."""
    rule = judged.rule
    is_remembered = rule is not None and rule.id is not None
    approval = None
    if judged.effect is Effect.ASK or is_remembered:
        approval = approvals.of_call(db, request.call.id)
    if approval is None or (is_remembered and approval.state == approvals.PENDING):
        granted = judged.effect is Effect.ALLOW and rule is not None
        return Verdict(judged.effect, rule, approval, uncaged=uncaged and granted)
    match approval.state:
        case approvals.PENDING:
            return Verdict(Effect.ASK, rule, approval)
        case approvals.ALLOWED:
            return Verdict(Effect.ALLOW, None, approval, uncaged=approval.uncaged)
        case _:
            return Verdict(Effect.DENY, None, approval)


def settle(db: Db, request: ToolRequest) -> None:
    """Say which rule a call was allowed or denied by; in the transaction that closes the call."""
    found = request.verdict
    rule, pending = found.rule, found.approval
    if rule is None or (found.effect is Effect.ALLOW and rule.id is None):
        return
    if pending is not None and pending.state == approvals.PENDING:
        state: approvals.State = "allowed" if found.effect is Effect.ALLOW else "denied"
        approvals.decide(db, pending.id, state, decided_by="rule", rule_id=rule.id)
        attention.look_again(db, request.session.id)
    applied = PermissionApplied(
        tool_call_id=request.call.id,
        agent_path=request.call.caller,
        effect=found.effect.value,
        rule=rule.words,
        rule_id=rule.id,
    )
    session_id, call = request.session.id, request.call
    events.append(db, session_id, applied, run_id=call.run_id, row=("tool_call", call.id))


def ask(db: Db, request: ToolRequest, approval: Approval) -> Approval | None:
    """Ask about a call that nobody was asked about; None when nobody needs an answer any more."""
    call = tool_calls.find(db, request.call.id)
    if call is None or call.state not in tool_calls.OPEN:
        return None
    stored = approvals.ask(db, approval)
    if stored.state == approvals.PENDING:
        admission.yield_slot(db, call.session_id, call.run_id)
        attention.look_again(db, call.session_id)
    return stored


def approval_of(
    request: ToolRequest, *, trouble: str | None, diff: str | None, expires_at: int | None
) -> Approval:
    """What the operator is shown of a call."""
    call, spec = request.call, BY_NAME[request.call.tool_name]
    arguments = spec.parse(asked(call))
    command = arguments.command if isinstance(arguments, ShellArguments) else None
    path = getattr(arguments, "path", None)
    uncaged = (
        trouble is not None and request.agent.cage != "disabled" and spec.kind in ASKED_UNCAGED
    )
    rule = request.verdict.rule
    return Approval(
        id=new_id(),
        session_id=call.session_id,
        run_id=call.run_id,
        tool_call_id=call.id,
        invocation_id=request.invocation_id,
        agent_path=call.caller,
        tool=spec.name,
        kind=spec.kind.value,
        title=summary(spec.name, call.input),
        input=call.input,
        diff=diff,
        paths=[] if path is None else [path_forms(path, request.session.working_directory)[0]],
        command=command,
        cwd=folder_of(request, arguments),
        reason=rule.words if rule is not None else f"no cage: {trouble}" if uncaged else "",
        uncaged=uncaged,
        expires_at=expires_at,
    )


def folder_of(request: ToolRequest, arguments: Any) -> str:
    """Where the call would be made."""
    own = getattr(arguments, "working_directory", None) or ""
    return os.path.normpath(Path(request.session.working_directory) / own)


def refusal(request: ToolRequest) -> ToolOutcome:
    """What the model reads of a call that is not made."""
    found = request.verdict
    approval = found.approval
    if found.rule is not None and (approval is None or approval.state == approvals.PENDING):
        words = f"A rule denies this call ({found.rule.words}). {NO_WAY_ROUND}"
        return ToolOutcome({"error": words, "denied_by": "rule"}, is_error=True)
    if approval is not None and approval.state == approvals.EXPIRED:
        return ToolOutcome({"error": TOO_LATE, "denied_by": "time"}, is_error=True)
    output: dict[str, Any] = {"error": BY_OPERATOR, "denied_by": "operator"}
    if approval is not None and approval.note:
        output["note"] = approval.note
    return ToolOutcome(output, is_error=True)
