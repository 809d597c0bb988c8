"""Shell lines as rules see them: every command that can be seen, and whether that is all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.permissions.command_lines import parsed
from holdfast.domain.permissions.globs import ANY

HOSTILE = [
    "git status; rm x",
    "git status && rm x",
    "git status || rm x",
    "git status | rm x",
    "git status & rm x",
    "git status\nrm x",
    "git status $(rm x)",
    "git status `rm x`",
    'git status "$(rm x)"',
    'git status "a `rm x` b"',
    "git status <(rm x)",
    "git status <<END\n$(rm x)\nEND",
    "git status <<END\nplain\nEND\nrm x",
    "git status > out; rm x",
    "(rm x)",
    "{ rm x; }",
    "! rm x",
    "eval rm x",
    "eval 'git status; rm x'",
    "FOO=1 rm x",
    "env FOO=1 rm x",
    "sh -c 'rm x'",
    "xargs rm x",
    "find . -exec rm x ;",
    "time rm x",
    "coproc rm x",
    "'r'm x",
    '"rm" x',
    r"r\m x",
    r"$'\x72m' x",
    "${a:-$(rm x)}",
    "$cmd x",
    "if git status; then rm x; fi",
    "for f in a; do rm x; done",
    "f() { rm x; }; f",
    "git status;;rm x",
    "git status \\\nrm x",
    "git status\rrm x",
    "git\u00a0status; rm x",
    "git status #\nrm x",
    "/bin/rm x",
    "git status 2>&1 | tee >(rm x)",
    "case a in a) rm x;; esac",
    "source ./x; rm x",
    "alias git=rm; git x",
    "git status ; ; rm x",
    "git status (",
    "git status 'a",
]


def shown(line: str) -> tuple[list[str], bool]:
    found = parsed(line)
    return [one.text.replace(ANY, "…") for one in found.commands], found.known


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_never_looks_like_the_harmless_command_alone(line: str) -> None:
    """It is not known, or `rm` is among what is seen, or it runs what nobody can see."""
    found = parsed(line)
    seen = any("rm" in one.text.split()[0].rsplit("/", 1)[-1] for one in found.commands)
    opaque = any(one.opaque for one in found.commands)
    assert seen or opaque or not found.known


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("git status", ["git status"]),
        ("git  'push' \"origin\"", ["git push origin"]),
        ("a && b | c; d", ["a", "b", "c", "d"]),
        ("git commit -m 'a; b'", ["git commit -m a; b"]),
        ("ls *.py", ["ls ….py"]),
        ("cat $HOME/x", ["cat …/x"]),
        ('echo "$x"', ["echo …"]),
        ("git p{us,ul}h", ["git p…h"]),
        ("make # a comment", ["make"]),
        ("echo $(date)", ["echo …", "date"]),
    ],
)
def test_a_plain_line_is_known_with_its_words_as_programs_get_them(
    line: str, texts: list[str]
) -> None:
    assert shown(line) == (texts, True)


@pytest.mark.parametrize("line", ["", "# only a comment", "x=1", "a" * 9000, "a\0b", "\ud800"])
def test_a_line_without_a_command_that_can_be_told_is_unknown(line: str) -> None:
    assert not parsed(line).known


def test_a_line_of_very_many_commands_is_unknown() -> None:
    assert parsed("; ".join(["a"] * 200)).known
    assert not parsed("; ".join(["a"] * 201)).known
    assert not parsed("(" * 200 + "a" + ")" * 200).known


@given(st.text(max_size=60))
def test_any_text_can_be_parsed(line: str) -> None:
    parsed(line)


@given(st.lists(st.sampled_from([*"ab;|&()<>$`'\"\\\n{}!#= "]), max_size=20).map("".join))
def test_any_shell_like_text_can_be_parsed_and_what_is_known_has_commands(line: str) -> None:
    found = parsed(line)
    assert found.commands or not found.known
