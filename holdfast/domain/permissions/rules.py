"""Rules about tool calls: deny before ask before allow, and a default where none matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.domain.permissions.command_lines import CommandLine, SimpleCommand
from holdfast.domain.permissions.globs import escaped, matches, may_match
from holdfast.domain.tools import ToolKind

EVERY_TOOL = "*"
# Without a cage these are asked for: what only reads changes nothing.
ASKED_UNCAGED = frozenset({ToolKind.EDIT, ToolKind.EXECUTE, ToolKind.FETCH})


class Effect(StrEnum):
    """What a rule does to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule; without a pattern it is about every call of the tool or kind."""

    tool: str
    effect: Effect
    pattern: str | None = None
    id: str | None = None  # of a remembered rule

    def concerns(self, call: Call) -> bool:
        """Whether it is about this tool at all."""
        return self.tool in (EVERY_TOOL, call.tool, call.kind.value)

    @property
    def words(self) -> str:
        """As people read it."""
        return f"{self.effect.value} {self.tool}" + (f" {self.pattern!r}" if self.pattern else "")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call as rules see it: a command line, or the ways to name its path or URL."""

    tool: str
    kind: ToolKind
    command: CommandLine | None = None
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What becomes of a call, and which rule says so; None where the default does."""

    effect: Effect
    rule: Rule | None = None


def default_effect(kind: ToolKind, *, caged: bool) -> Effect:
    """What becomes of a call that no rule matches; `caged`: in a cage, or without one by choice."""
    return Effect.ASK if kind in ASKED_UNCAGED and not caged else Effect.ALLOW


def judge(
    call: Call, rules: Iterable[Rule], *, default: Effect, remembered: Iterable[Rule] = ()
) -> Judgement:
    """Deny before ask before allow. An answer that was remembered takes the place of asking."""
    about = [rule for rule in (*rules, *remembered) if rule.concerns(call)]
    answers = [rule for rule in about if rule.id is not None and rule.effect is Effect.ALLOW]
    if call.command is not None:
        return _judge_line(call.command, about, answers, default)
    return _judge_one(call.targets, about, answers, default)


def _judge_line(
    line: CommandLine, about: list[Rule], answers: list[Rule], default: Effect
) -> Judgement:
    """Each part must be allowed; one part is enough to be asked or denied."""
    texts = (line.text, *(form for command in line.commands for form in command.forms))
    settled = _denied(texts, about) or _exactly(line, answers)
    if settled is not None:
        return settled
    parts = [_judge_part(command, about, answers, default) for command in line.commands]
    if line.known and all(part.rule in answers for part in parts):
        return parts[0]
    asked = next((part for part in parts if part.effect is Effect.ASK), None)
    asked = asked or _asked((line.text,), about)
    if asked is not None:
        return asked
    if not line.known:
        return _concealed(about, answers, default)
    return next((part for part in parts if part.rule is None), parts[0])


def _judge_part(
    command: SimpleCommand, about: list[Rule], answers: list[Rule], default: Effect
) -> Judgement:
    allowed = _first(_naming(answers, command), Effect.ALLOW, (command.text,))
    if allowed is not None:
        return Judgement(effect=Effect.ALLOW, rule=allowed)
    asked = _asked(command.forms, about)
    if asked is not None:
        return asked
    allowed = _first(_naming(about, command), Effect.ALLOW, (command.text,))
    if allowed is None and command.opaque:
        return _concealed(about, answers, default)
    return Judgement(effect=default if allowed is None else Effect.ALLOW, rule=allowed)


def _judge_one(
    targets: Sequence[str], about: list[Rule], answers: list[Rule], default: Effect
) -> Judgement:
    denied = _denied(targets, about)
    if denied is not None:
        return denied
    allowed = _first(answers, Effect.ALLOW, targets)
    if allowed is not None:
        return Judgement(effect=Effect.ALLOW, rule=allowed)
    asked = _asked(targets, about)
    if asked is not None:
        return asked
    allowed = _first(about, Effect.ALLOW, targets)
    return Judgement(effect=default if allowed is None else Effect.ALLOW, rule=allowed)


def _asked(texts: Sequence[str], about: list[Rule]) -> Judgement | None:
    """By a rule that says so, or because what only the shell knows may be what is denied."""
    rule = _first(about, Effect.ASK, texts, certain=False)
    rule = rule or _first(about, Effect.DENY, texts, certain=False)
    return None if rule is None else Judgement(effect=Effect.ASK, rule=rule)


def _denied(texts: Sequence[str], about: list[Rule]) -> Judgement | None:
    rule = _first(about, Effect.DENY, texts)
    return None if rule is None else Judgement(effect=Effect.DENY, rule=rule)


def _exactly(line: CommandLine, answers: list[Rule]) -> Judgement | None:
    """A whole line that was allowed to the letter, or every command of its tool."""
    for rule in answers:
        if rule.pattern is None or rule.pattern == escaped(line.text):
            return Judgement(effect=Effect.ALLOW, rule=rule)
    return None


def _concealed(about: list[Rule], answers: list[Rule], default: Effect) -> Judgement:
    """What it runs cannot be known: asked as soon as any rule depends on that."""
    own = [rule for rule in about if rule not in answers]
    told = [rule for rule in own if rule.pattern is not None and rule.effect is not Effect.ALLOW]
    every = [rule for rule in own if rule.pattern is None]
    rule = next(iter([*told, *every, *own]), None)
    if rule is None:
        return Judgement(effect=default)
    return Judgement(effect=Effect.ALLOW if rule in every else Effect.ASK, rule=rule)


def _naming(rules: list[Rule], command: SimpleCommand) -> list[Rule]:
    """Of a program that runs others, only the rules that name it: `*` does not mean `eval`."""
    if not command.opaque:
        return rules
    return [one for one in rules if one.pattern and one.pattern.split(" ", 1)[0] == command.name]


def _first(
    rules: Iterable[Rule], effect: Effect, texts: Sequence[str], *, certain: bool = True
) -> Rule | None:
    """The first rule with this effect that matches a text; if not `certain`, that may match."""
    look = matches if certain else may_match
    for rule in rules:
        if rule.effect is effect and (
            rule.pattern is None or any(look(rule.pattern, text) for text in texts)
        ):
            return rule
    return None
