"""YAML for project files: a small, strict subset, with the place of every value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from holdfast.domain.errors import DslInvalid

BYTES_MAX = 256 * 1024
DEPTH_MAX = 40
VALUES_MAX = 20_000
_TAG = "tag:yaml.org,2002:"

Path = tuple[str | int, ...]


@dataclass
class Document:
    """A mapping, and where each of its values stands."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    raw: bytes = b""


def invalid(
    name: str, reason: str, *, line: int = 1, column: int = 1, path: Path = ()
) -> DslInvalid:
    """The refusal that says where a file is broken, counted from 1."""
    where = ".".join(str(step) for step in path)
    message = f"{name}:{line}:{column}: {where + ': ' if where else ''}{reason}"
    details = {"file": name, "line": line, "column": column, "reason": reason, "path": where}
    return DslInvalid(message, details)


def parse(name: str, raw: bytes) -> Document:
    """The document in `raw`, or DslInvalid with line, column and reason."""
    text = _text(name, raw)
    try:
        _check_events(name, text)
        node = _reader().compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        reason = str(error.problem or error.context or "not valid YAML").strip()
        raise invalid(name, reason, line=line, column=column) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, IndexError) as error:
        raise invalid(name, f"not valid YAML: {str(error)[:200]}") from None
    document = Document(name, raw=raw)
    if node is None:
        return document
    value = _value(document, node, ())
    if value is None:
        return document
    if not isinstance(value, dict):
        raise invalid(name, "the file must be a mapping of keys to values")
    document.data = value
    return document


def _reader() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 2)
    return reader


def _text(name: str, raw: bytes) -> str:
    if len(raw) > BYTES_MAX:
        raise invalid(name, f"larger than {BYTES_MAX // 1024} KiB")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise invalid(name, "begins with a byte order mark; save it as plain UTF-8")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise invalid(name, "not UTF-8", line=line, column=column) from None


def _check_events(name: str, text: str) -> None:
    """Refuse bombs before anything is built: the parser itself holds only its stack."""
    depth = values = documents = 0
    for event in _events(text):
        place = {"line": event.start_mark.line + 1, "column": event.start_mark.column + 1}
        if isinstance(event, DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise invalid(name, "more than one document", **place)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1
        elif isinstance(event, AliasEvent):
            raise invalid(name, "aliases (*name) are not supported", **place)
        values += isinstance(event, ScalarEvent)
        if getattr(event, "anchor", None):
            raise invalid(name, "anchors (&name) are not supported", **place)
        if depth > DEPTH_MAX:
            raise invalid(name, f"nested deeper than {DEPTH_MAX} levels", **place)
        if values > VALUES_MAX:
            raise invalid(name, f"more than {VALUES_MAX} values", **place)


def _events(text: str) -> Iterator[Any]:
    yield from _reader().parse(text)


def _value(document: Document, node: Any, path: Path) -> Any:
    document.places.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
    if isinstance(node, MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, SequenceNode):
        return [_value(document, item, (*path, at)) for at, item in enumerate(node.value)]
    assert isinstance(node, ScalarNode)
    return _scalar(document, node, path)


def _mapping(document: Document, node: MappingNode, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = {"line": key_node.start_mark.line + 1, "column": key_node.start_mark.column + 1}
        if not isinstance(key_node, ScalarNode) or str(key_node.tag) != _TAG + "str":
            raise invalid(document.name, "a key must be plain text", path=path, **place)
        key = _scalar(document, key_node, path)
        if key in found:
            raise invalid(document.name, f"duplicate key {key!r}", path=path, **place)
        document.places[(*path, key)] = (place["line"], place["column"])
        found[key] = _value(document, value_node, (*path, key))
    return found


def _scalar(document: Document, node: ScalarNode, path: Path) -> Any:
    place = {"line": node.start_mark.line + 1, "column": node.start_mark.column + 1}
    kind = str(node.tag).removeprefix(_TAG)
    text = str(node.value)
    if kind in ("str", "timestamp"):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise invalid(document.name, "text is not Unicode", path=path, **place)
        return text
    if kind not in ("null", "bool", "int", "float"):
        raise invalid(document.name, f"tag {str(node.tag)[:80]!r} is not supported", **place)
    try:
        value = _reader().constructor.construct_object(node)
    except (YAMLError, ValueError, OverflowError, KeyError):
        raise invalid(document.name, f"not a valid {kind}", path=path, **place) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise invalid(document.name, "a number must be finite", path=path, **place)
    return value
