"""Which simple commands a shell line runs. What cannot be known is said to be unknown.

Every kind of node that a whitelist does not name makes the line unknown: a new construct of the
grammar is then asked about. None of it is a wall: a program that is allowed may start others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from holdfast.domain.permissions.globs import ANY

BYTES_MAX = 8192
COMMANDS_MAX = 200
DEPTH_MAX = 100
NODES = """
    program list pipeline command command_name word string string_content raw_string concatenation
    number subshell compound_statement redirected_statement negated_command comment
    command_substitution simple_expansion variable_name special_variable_name
    && || ; | |& & ( ) { } " $( ` $ !
"""
KNOWN = frozenset(NODES.split()) | {"\n"}
NO_WORDS = frozenset({"comment", "variable_assignment"})
PLAIN_NAME = re.compile(r"[A-Za-z0-9_./+-]+")
UNQUOTED_MAGIC = re.compile(r"[*?\[\]{}~]")
# They run what their arguments say, or change what later words mean.
PROGRAMS = """
    eval exec source . builtin command env xargs find time coproc trap alias unalias enable hash
    set shopt sudo su doas nohup nice timeout stdbuf setsid ionice chroot unshare nsenter
    parallel watch script ssh sh bash dash ash zsh ksh fish busybox python python3 node perl
    ruby awk gawk sed vi vim ed make if then else elif fi for while until do done case esac
    select function in bind complete compgen mapfile readarray read export declare typeset local
    readonly let printf test [ [[
"""
OPAQUE = frozenset(PROGRAMS.split())


@dataclass(frozen=True)
class SimpleCommand:
    """A program with its arguments: quotes removed, words one blank apart, ANY for the unknown."""

    text: str
    opaque: bool = False  # it runs other commands, which nobody can see here

    @property
    def name(self) -> str:
        """The program as it is written."""
        return self.text.split(" ", 1)[0]

    @property
    def forms(self) -> tuple[str, ...]:
        """The text, and the same without the folder of the program."""
        base = self.name.rsplit("/", 1)[-1]
        bare = base + self.text[len(self.name) :]
        return (self.text,) if bare == self.text else (self.text, bare)


@dataclass(frozen=True)
class CommandLine:
    """What a line runs; `known` when it is certain that it runs nothing else."""

    text: str
    commands: tuple[SimpleCommand, ...]
    known: bool


def parsed(line: str) -> CommandLine:
    """The simple commands of a line, those inside of substitutions and subshells too."""
    text = line.strip()
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > BYTES_MAX or "\0" in text:
        return CommandLine(text.replace(ANY, ""), (), known=False)
    root = _parser().parse(raw).root_node
    known = not root.has_error and text.isascii() and "\\" not in text
    known = known and all(one.isprintable() or one in "\t\n" for one in text)
    found: list[SimpleCommand] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if len(found) > COMMANDS_MAX or depth > DEPTH_MAX:
            return CommandLine(text, tuple(found), known=False)
        known = known and node.type in KNOWN and not node.is_missing
        if node.type == "command":
            command = _command(node)
            known = known and command is not None
            found += [command] if command is not None else []
        waiting += [(child, depth + 1) for child in reversed(node.children)]
    return CommandLine(text, tuple(found), known=known and bool(found))


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def _command(node: Node) -> SimpleCommand | None:
    """The words of one command; None when its program is not a plain name."""
    words = [
        _value(child)
        for child in node.named_children
        if child.type not in NO_WORDS and not child.type.endswith("redirect")
    ]
    if not words:
        return None
    name = words[0]
    if PLAIN_NAME.fullmatch(name) is None:
        return None
    return SimpleCommand(" ".join(words), opaque=name.rsplit("/", 1)[-1] in OPAQUE)


def _value(node: Node) -> str:
    """A word as the program gets it; ANY in place of what only the shell knows."""
    text = (node.text or b"").decode("utf-8", "replace")
    match node.type:
        case "command_name":
            return "".join(_value(child) for child in node.children)
        case "concatenation":
            # Braces make several words of all that stands between them.
            return _joined("".join(_value(child) for child in node.children))
        case "raw_string":
            return text[1:-1]
        case "string":
            return _quoted(node, text)
        case "word" | "number":
            return _expanded(text)
        case _:
            return ANY


def _joined(word: str) -> str:
    first, last = word.find(ANY), word.rfind(ANY)
    return word if first < 0 else word[:first] + ANY + word[last + 1 :]


def _quoted(node: Node, text: str) -> str:
    """A text in double quotes; whatever is expanded in it is unknown."""
    inside = [child for child in node.children if child.type not in ('"', "string_content")]
    return ANY if inside else text[1:-1]


def _expanded(word: str) -> str:
    """A word without quotes: file names and braces may make several of it."""
    found = [one.start() for one in UNQUOTED_MAGIC.finditer(word)]
    return word if not found else word[: found[0]] + ANY + word[found[-1] + 1 :]
