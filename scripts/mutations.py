"""The mutants of a Python file: small edits of its syntax tree, each named by what it changes."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType

from scripts.sources import parse

SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Calls of a query that may be left out: `query.limit(3)` becomes `query`.
CLAUSES = {"where", "order_by", "limit", "desc", "distinct", "with_for_update", "offset"}
CONDITIONS = {"where", "and_", "or_", "order_by"}
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Words for people, not for programs: no test should pin them.
LOGGERS = {"debug", "info", "warning", "error", "exception", "critical", "getLogger", "get_logger"}
WORDING = {"description", "title", "help", "message", "detail"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One edit: the node `target` of the module's tree becomes `after`."""

    file: str
    function: str  # the outermost function's qualified name; empty: code that runs at import
    mutation: str  # before → after, and the number of the occurrence where it is not the first
    lines: range  # of the statement that is changed
    names: frozenset[str]  # the module-level names that are changed
    tree: ast.Module = field(repr=False, compare=False)
    target: ast.AST = field(repr=False, compare=False)
    after: ast.AST = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start} {self.function or '(module)'} :: {self.mutation}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it in the list of equivalent mutants; stays true when lines move."""
        return (self.file, self.function, self.mutation)

    def compiled(self, root: Path) -> CodeType:
        """The whole module with the edit in it."""
        # `deepcopy` takes what it believes to have copied already from the memo.
        changed = copy.deepcopy(self.tree, {id(self.target): self.after})
        return compile(ast.fix_missing_locations(changed), str(root / self.file), "exec")


@dataclass(frozen=True)
class _Place:
    """Where the walk is."""

    prefix: str = ""  # of the names of functions: the classes around them
    function: str = ""
    statement: ast.stmt | None = None
    names: frozenset[str] = frozenset()
    worded: bool = False  # inside what people read


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of the file, in the order of its source."""
    tree = parse(path)
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for target, after, mutation, place in _walk(tree, _Place()):
        seen[place.function, mutation] += 1
        number = seen[place.function, mutation]
        assert place.statement is not None
        found.append(
            Mutant(
                file=path.relative_to(root).as_posix(),
                function=place.function,
                mutation=mutation if number == 1 else f"{mutation} (#{number})",
                lines=_own_lines(place.statement),
                names=place.names,
                tree=tree,
                target=target,
                after=after,
            )
        )
    return found


def _walk(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, ast.AST, str, _Place]]:
    """Each edit at the node or below it: the node, what replaces it, its name, the place."""
    if _is_skipped(node):
        return
    if isinstance(node, FunctionNode) and not place.function:
        yield from _walk_function(node, place)
        return
    if isinstance(node, ast.stmt):
        names = place.names or frozenset(_bound_names(node))
        place = replace(place, statement=node, names=names)
    if isinstance(node, ast.ClassDef):
        place = replace(place, prefix=f"{place.prefix}{node.name}.")
    if _is_wording(node):
        place = replace(place, worded=True)
    for mutation, after in _edits(node, place):
        yield node, ast.copy_location(after, node), mutation, place
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "bases"}:
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _walk(part, place)


def _walk_function(
    node: FunctionNode, place: _Place
) -> Iterator[tuple[ast.AST, ast.AST, str, _Place]]:
    """Decorators and defaults run at import, the body does not."""
    at_import = replace(place, statement=node, names=place.names or frozenset({node.name}))
    defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    for part in [*node.decorator_list, *defaults]:
        yield from _walk(part, at_import)
    inside = replace(at_import, function=f"{place.prefix}{node.name}")
    for statement in node.body:
        yield from _walk(statement, inside)


def _edits(node: ast.AST, place: _Place) -> Iterator[tuple[str, ast.AST]]:
    """The name of each edit of this one node, and what stands there instead."""
    if isinstance(node, ast.stmt):
        if _may_go(node):
            yield f"delete: {_text(node)}", ast.Pass()
        if isinstance(node, ast.If) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            yield f"if {_text(node.test)} → if {_text(test)}", ast.If(test, node.body, node.orelse)
        return
    for after in _variants(node, place):
        yield f"{_text(node)} → {_text(after)}", after
    if isinstance(node, ast.Call) and not place.worded:
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in WORDING:
                rest = [one for one in node.keywords if one is not keyword]
                yield f"without {_text(keyword)}", ast.Call(node.func, node.args, rest)


def _variants(node: ast.AST, place: _Place) -> Iterator[ast.expr]:
    """What may stand in the place of this expression, one change each."""
    match node:
        case ast.Constant():
            yield from _other_constants(node, place)
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                operators = list(node.ops)
                operators[position] = SWAPPED[type(operator)]()
                yield ast.Compare(node.left, operators, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(SWAPPED[type(node.op)](), node.values)
            yield from node.values
        case ast.BinOp() if type(node.op) in SWAPPED:
            yield ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Call():
            yield from _other_calls(node)


def _other_constants(node: ast.Constant, place: _Place) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float) and not place.worded:
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and not place.worded:
        yield ast.Constant(f"{value}·")


def _other_calls(node: ast.Call) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Name):
        if node.func.id in OTHER_NAMES:
            yield ast.Call(
                ast.Name(OTHER_NAMES[node.func.id], ast.Load()), node.args, node.keywords
            )
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in CONDITIONS and len(node.args) > 1:
        for position in range(len(node.args)):
            rest = [*node.args[:position], *node.args[position + 1 :]]
            yield ast.Call(node.func, rest, node.keywords)
    elif name in CLAUSES and isinstance(node.func, ast.Attribute):
        yield node.func.value


def _may_go(statement: ast.stmt) -> bool:
    """Whether the module is still a module without this statement."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.AugAssign() | ast.Continue() | ast.Break() | ast.Raise() | ast.Delete():
            return True
        case ast.Return(value=ast.expr()):
            return True
    return False


def _is_skipped(node: ast.AST) -> bool:
    """Docstrings, imports and what only type checkers read."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "model_config")]):
            return True
        case ast.Subscript(value=ast.Name(id="Literal" | "Annotated")):
            return True
    return False


def _is_wording(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr():
            return True
        case ast.keyword():
            return node.arg in WORDING
        case ast.Call(func=ast.Attribute()):
            return node.func.attr in LOGGERS  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call())):
            return True  # of an error: its words
    return False


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _own_lines(statement: ast.stmt) -> range:
    """The statement's own lines: of a compound one only its head."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if body and not isinstance(statement, FunctionNode | ast.ClassDef):
        last = body[0].lineno if isinstance(body[0], ast.stmt) else statement.lineno + 1
        return range(statement.lineno, max(statement.lineno + 1, last))
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _text(node: ast.AST) -> str:
    words = " ".join(ast.unparse(node).split())
    return words if len(words) <= 120 else f"{words[:80]}…{words[-39:]}"
