"""`.holdfast/project.yaml` with `project.local.yaml` over it: read, merged, checked and hashed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.errors import DslInvalid, NotFound, ValidationFailed
from holdfast.domain.project_file import ProjectFile
from holdfast.folders import kernel_places
from holdfast.folders.hidden import is_hidden
from holdfast.folders.reading import read_below
from holdfast.storage.projects import project_yaml
from holdfast.storage.projects.project_yaml import Document, invalid

FOLDER = ".holdfast"
FILE = "project.yaml"
LOCAL_FILE = "project.local.yaml"
LOCKED = ("version", "project")
PATH_CHARS_MAX = 4096
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class LoadedFile:
    """A project file that may be used; `models` and `running_sessions` are what it says itself."""

    path: Path
    file: ProjectFile
    hash: str  # of the files' bytes
    meaning: str
    content: dict[str, Any]
    models: tuple[tuple[project_yaml.Path, str], ...] = ()
    places: dict[project_yaml.Path, tuple[int, int]] = field(default_factory=dict)
    running_sessions: int | None = None


def load(folder: Path) -> LoadedFile:
    """The project file of `folder`; a folder without one gets the defaults."""
    documents = [
        document for name in (FILE, LOCAL_FILE) if (document := _read(folder, name)) is not None
    ]
    base = next((document for document in documents if document.name == FILE), None)
    data = base.data if base is not None else {"project": default_name(folder)}
    for document in documents:
        if document.name == LOCAL_FILE:
            _check_locked(document, data)
            data = merge(data, document.data)
    return _checked(folder, data, documents)


def folder_of(path: str, hidden: Iterable[Path] = ()) -> Path:
    """The real folder at `path`, or a refusal: only whole, existing folders are projects.

    None of the product's own is: `hidden` are their real paths.
    """
    if not path or len(path) > PATH_CHARS_MAX or "\0" in path:
        raise ValidationFailed("path must be an absolute path of a folder")
    try:
        path.encode("utf-8")
        folder = Path(path).expanduser()
        if not folder.is_absolute():
            raise ValidationFailed("path must be absolute")
        resolved = folder.resolve(strict=True)
    except UnicodeEncodeError:
        raise ValidationFailed("path must be valid text") from None
    except (OSError, RuntimeError):
        raise NotFound("no such folder") from None
    if not resolved.is_dir():
        raise ValidationFailed("path is not a folder")
    if is_hidden(resolved, hidden):
        raise ValidationFailed("path lies in Holdfast's own folders, where no project can be")
    if kernel_places.is_of_kernel(resolved):
        raise ValidationFailed(f"path {kernel_places.WORDS}")
    return resolved


def stamp(folder: Path) -> Stamp:
    """Changes whenever one of the two files was written; costs two stats."""
    return tuple(_stamp(folder / FOLDER / name) for name in (FILE, LOCAL_FILE))


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Objects merge, everything else replaces, null takes away."""
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def default_name(folder: Path) -> str:
    """A project name made from the folder's."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:63].strip("-")
    if not words:
        return "project"
    return words if len(words) > 1 else f"project-{words}"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the project file."""
    schema = ProjectFile.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast project file",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _read(folder: Path, name: str) -> Document | None:
    try:
        raw = read_below(folder, f"{FOLDER}/{name}", limit=project_yaml.BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise invalid(name, f"cannot be read: {error.strerror}") from None
    return project_yaml.parse(name, raw)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - the cheapest spelling, called on every request
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _check_locked(document: Document, base: dict[str, Any]) -> None:
    for key in LOCKED:
        if key in document.data and document.data[key] != base.get(key, 1):
            line, column = document.places[(key,)]
            reason = f"{key} is locked: only {FILE} may set it"
            raise invalid(document.name, reason, line=line, column=column, path=(key,))


def _checked(folder: Path, data: dict[str, Any], documents: list[Document]) -> LoadedFile:
    try:
        file = ProjectFile.model_validate(data)
    except ValidationError as error:
        raise _located(error, documents) from None
    content = file.model_dump(mode="json")
    limits = data.get("limits") or {}
    return LoadedFile(
        path=folder,
        file=file,
        hash=_hash(documents, data),
        meaning=sha256(canonical(content)),
        content=content,
        models=tuple(_models(data.get("primary"), ("primary",))),
        places={path: place for document in documents for path, place in document.places.items()},
        running_sessions=limits.get("running_sessions"),
    )


def _hash(documents: list[Document], data: dict[str, Any]) -> str:
    """Of every byte of the files; without project.yaml the folder's name counts too."""
    read = {document.name: sha256(document.raw) for document in documents}
    named = {} if FILE in read else {"project": data["project"]}
    return sha256(canonical({"files": read, **named}))


def _models(agent: Any, path: project_yaml.Path) -> list[tuple[project_yaml.Path, str]]:
    """Every model that the file names, with the path of its key."""
    if not isinstance(agent, dict):
        return []
    found = [((*path, "model"), str(agent["model"]))] if agent.get("model") else []
    for name, child in (agent.get("subagents") or {}).items():
        found += _models(child, (*path, "subagents", name))
    return found


def _located(error: ValidationError, documents: list[Document]) -> DslInvalid:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    reason = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        reason = f"unknown key {problem['loc'][-1]!r}"
    # pydantic puts names of union members between the steps; only steps that are in the file count.
    for document in reversed(documents):
        path: project_yaml.Path = ()
        for step in problem["loc"]:
            if (*path, step) in document.places:
                path = (*path, step)
        if path:
            line, column = document.places[path]
            return invalid(document.name, reason, line=line, column=column, path=problem["loc"])
    name = documents[0].name if documents else FILE
    return invalid(name, reason, path=problem["loc"])
