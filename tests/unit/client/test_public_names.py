"""`from holdfast import …`: light, complete, and the same methods in both clients."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from holdfast import AsyncClient, AsyncSessionStream, Client, SessionStream


def imported_by(statement: str) -> set[str]:
    """The packages that a new interpreter imports for this statement, besides the standard ones."""
    program = f"import sys; before = set(sys.modules); {statement}\n"
    program += "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = {name.partition(".")[0] for name in json.loads(answer.stdout)}
    return names - set(sys.stdlib_module_names)


def test_importing_the_package_imports_nothing_else() -> None:
    assert imported_by("import holdfast") == {"holdfast"}


def test_the_errors_and_frames_need_no_http_library() -> None:
    assert imported_by("from holdfast import ClientError, Frame, Refused") == {"holdfast"}
    assert "httpx2" in imported_by("from holdfast import Client")


def test_every_public_name_is_there() -> None:
    assert {getattr(holdfast, name).__name__ for name in holdfast.__all__} == set(holdfast.__all__)
    assert set(holdfast.__all__) <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="no attribute 'Holdfast'"):
        getattr(holdfast, "Holdfast")  # noqa: B009 - mypy knows that there is none


def parameters(kind: type[Any]) -> dict[str, list[str]]:
    """The public methods and what each of them takes."""
    return {
        name: list(map(str, inspect.signature(method).parameters.values()))
        for name, method in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("blocking", "awaiting"), [(Client, AsyncClient), (SessionStream, AsyncSessionStream)]
)
def test_both_kinds_have_the_same_methods(blocking: type[Any], awaiting: type[Any]) -> None:
    assert parameters(blocking) == parameters(awaiting)
    documented = [name for name in parameters(awaiting) if inspect.getdoc(getattr(awaiting, name))]
    assert documented == list(parameters(awaiting))
