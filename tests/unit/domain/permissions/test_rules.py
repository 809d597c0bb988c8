"""Rules: deny before ask before allow, each part of a line by itself, and what is remembered."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.permissions.command_lines import parsed
from holdfast.domain.permissions.globs import escaped
from holdfast.domain.permissions.rules import Call, Effect, Rule, default_effect, judge
from holdfast.domain.project_file import AgentSpec, Permission, ProjectFile
from holdfast.domain.tools import ToolKind
from tests.unit.domain.permissions.test_command_lines import HOSTILE

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


def rule(text: str, *, remembered: str | None = None) -> Rule:
    """`deny shell git push*` as a rule."""
    effect, tool, *pattern = text.split(" ", 2)
    return Rule(
        tool=tool,
        effect=Effect(effect),
        pattern=pattern[0] if pattern else None,
        id=remembered,
    )


def shell(
    line: str, *rules: str, remembered: Iterable[str] = (), default: Effect = ALLOW
) -> Effect:
    call = Call(tool="shell", kind=ToolKind.EXECUTE, command=parsed(line))
    answers = [rule(one, remembered=f"r{number}") for number, one in enumerate(remembered)]
    found = judge(call, [rule(one) for one in rules], default=default, remembered=answers)
    return found.effect


def path(*targets: str, rules: list[str]) -> Effect:
    call = Call(tool="write_file", kind=ToolKind.EDIT, targets=targets)
    return judge(call, [rule(one) for one in rules], default=ALLOW).effect


@pytest.mark.parametrize(
    ("line", "rules", "effect"),
    [
        ("git push", [], ALLOW),
        ("git push", ["ask shell git push*"], ASK),
        ("git push", ["ask execute git push*"], ASK),
        ("git push", ["ask * git push*"], ASK),
        ("git push", ["ask edit git push*", "deny read"], ALLOW),
        ("git push", ["allow shell git*", "ask shell git push*", "deny shell git push*"], DENY),
        ("git push", ["allow shell git*", "ask shell git push*"], ASK),
        ("git status", ["allow shell git*", "ask shell git push*"], ALLOW),
        ("git status; git push", ["ask shell git push*"], ASK),
        ("git status; git push", ["deny shell git push*"], DENY),
        ("true && (git push)", ["deny shell git push*"], DENY),
        ("echo $(git push)", ["deny shell git push*"], DENY),
        ("FOO=1 git push > x", ["deny shell git push*"], DENY),
        ("/usr/bin/git push", ["deny shell git push*"], DENY),
        ("git 'push'", ["deny shell git push*"], DENY),
        ("git $x", ["deny shell git push*"], ASK),
        ("git p{us,ul}h", ["deny shell git push*"], ASK),
        ("ls *.py", ["deny shell git push*"], ALLOW),
        ("eval 'git push'", ["deny shell git push*"], ASK),
        ("python x.py", ["deny shell git push*"], ASK),
        ("python x.py", ["deny shell git push*", "allow shell python *"], ALLOW),
        ("python x.py", ["deny shell git push*", "allow shell *"], ASK),
        ("eval x", ["allow shell"], ALLOW),
        ("eval x", ["deny shell git push*", "allow shell"], ASK),
        ("x > y", ["allow shell x*"], ASK),
        ("x > y", ["allow read x*"], ALLOW),
        ("x", ["deny shell"], DENY),
        ("x > y", ["deny shell"], DENY),
        ("x > y", ["ask shell"], ASK),
    ],
)
def test_rules_of_a_project_file(line: str, rules: list[str], effect: Effect) -> None:
    assert shell(line, *rules) is effect


@pytest.mark.parametrize(
    ("line", "rules", "effect"),
    [
        ("git push", [], ASK),
        ("git status; ls", ["allow shell git *"], ASK),
        ("git status; ls", ["allow shell git *", "allow shell ls*"], ALLOW),
        ("git status; ls > x", ["allow shell git *", "allow shell ls*"], ASK),
        ("git status; ls > x", ["allow shell"], ALLOW),
    ],
)
def test_every_part_must_be_allowed_where_nothing_is_by_default(
    line: str, rules: list[str], effect: Effect
) -> None:
    assert shell(line, *rules, default=ASK) is effect


@pytest.mark.parametrize(
    ("line", "remembered", "effect"),
    [
        ("git push", ["allow shell git *"], ALLOW),
        ("git push; ls", ["allow shell git *"], ASK),
        ("git push; ls", ["allow shell git *", "allow shell ls*"], ALLOW),
        ("git push; rm x", ["allow shell *"], DENY),
        ("git push; rm x", ["allow shell"], DENY),
        ("git push > x", ["allow shell git *"], ASK),
        ("git push > x", [f"allow shell {escaped('git push > x')}"], ALLOW),
        ("ls *.py > x", [f"allow shell {escaped('ls *.py > x')}"], ALLOW),
        ("ls a.py > x", [f"allow shell {escaped('ls *.py > x')}"], ASK),
        ("git push", ["deny shell git *", "allow shell git *"], DENY),
        ("eval x", ["allow shell"], ALLOW),
        ("eval x", ["allow shell *"], ASK),
    ],
)
def test_a_remembered_answer_takes_the_place_of_asking_and_never_of_a_denial(
    line: str, remembered: list[str], effect: Effect
) -> None:
    assert shell(line, "ask shell", "deny shell rm*", remembered=remembered) is effect


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_is_never_allowed_by_what_allows_its_harmless_part(line: str) -> None:
    assert shell(line, "allow shell git status*", default=ASK) is not ALLOW
    assert shell(line, remembered=["allow shell git status*"], default=ASK) is not ALLOW
    assert shell(line, "deny shell rm*", "allow shell git status*") is not ALLOW


JOINTS = ["; ", " && ", " || ", " | ", "\n", " & "]
WRAPS = [
    "{}",
    "({})",
    "$({})",
    "`{}`",
    "x=1 {}",
    "eval {}",
    "env {}",
    "{} > out",
    "! {}",
    "{} <<<x",
]


@given(
    st.lists(st.tuples(st.sampled_from(JOINTS), st.sampled_from(WRAPS)), max_size=4),
    st.integers(0, 4),
)
def test_a_denied_part_is_never_allowed_wherever_it_stands(
    others: list[tuple[str, str]], place: int
) -> None:
    parts = [wrap.format("git status") for _, wrap in others]
    wrap = others[place % len(others)][1] if others else "{}"
    parts.insert(place, wrap.format("rm x"))
    joint = others[0][0] if others else "; "
    line = joint.join(parts)
    assert shell(line, "deny shell rm*", "allow shell git*") is not ALLOW
    assert shell(line, "ask shell rm*") is not ALLOW
    assert shell(line, "allow shell git*", default=ASK) is not ALLOW


def test_paths_are_matched_in_each_of_their_forms() -> None:
    deny = ["deny edit secrets/*", "allow edit *"]
    assert path("secrets/key", "/srv/me/secrets/key", rules=deny) is DENY
    assert path("notes", "/srv/me/notes", rules=deny) is ALLOW
    assert path("x", "/srv/me/x", rules=["ask write_file /srv/*"]) is ASK
    assert path(rules=["deny edit secrets/*"]) is ALLOW


def test_only_what_changes_something_is_asked_about_without_a_cage() -> None:
    asked = {kind for kind in ToolKind if default_effect(kind, caged=False) is ASK}
    assert asked == {ToolKind.EDIT, ToolKind.EXECUTE, ToolKind.FETCH}
    assert {default_effect(kind, caged=True) for kind in ToolKind} == {ALLOW}


def test_a_subagent_is_asked_for_and_denied_what_its_callers_are() -> None:
    def spec(*permissions: str, **subagents: AgentSpec) -> AgentSpec:
        rules = [rule(one) for one in permissions]
        entries = [Permission(tool=one.tool, effect=one.effect.value) for one in rules]
        return AgentSpec(permissions=entries, subagents=subagents)

    inner = spec("ask fetch", "allow edit")
    file = ProjectFile(
        project="rules", primary=spec("deny shell", "allow read", a=spec("ask edit", b=inner))
    )

    def words(path: str) -> list[str]:
        return [one.words for one in file.rules(path)]

    assert words("primary") == ["deny shell", "allow read"]
    assert words("primary.subagents.a") == ["deny shell", "ask edit"]
    assert words("primary.subagents.a.subagents.b") == [
        "deny shell",
        "ask edit",
        "ask fetch",
        "allow edit",
    ]
