"""The repository keeps its own rules: sizes, docstrings, names, no traces of a machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

from scripts.sources import parse

ROOT = Path(__file__).resolve().parents[3]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PAGE_LINES_MAX = 120
DECISION_LINES_MAX = 40
MODULES_MAX = 25
# Where packages come from is the reader's business; where they were fetched from here is ours.
MACHINE_TRACES = r"(/root/|/home/[a-z]+/|/work/|files\.pythonhosted\.org|registry\.npmjs\.org)"
MACHINE_TRACES += r"|(https?://[^ ]*/(simple|pypi|npm)/)|(index-url[ =]+http)"
# What may name them: this test, and the documents' own links to the requirements.
TRACES_ALLOWED = {"tests/unit/repository/test_tidy.py", "Dockerfile"}


@cache
def tracked() -> list[str]:
    answer = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


@cache
def modules() -> dict[str, ast.Module]:
    return {name: parse(ROOT / name) for name in tracked() if name.endswith(".py")}


def length(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def test_no_python_file_is_longer_than_the_cap() -> None:
    assert [name for name in modules() if length(name) > FILE_LINES_MAX] == []


def test_no_function_is_longer_than_the_cap() -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_python_file_says_on_line_one_what_it_promises() -> None:
    silent = []
    for name, module in modules().items():
        first = module.body[0] if module.body else None
        if ast.get_docstring(module) is None or first is None or first.lineno != 1:
            silent.append(name)
    assert silent == []


def test_no_name_shadows_the_standard_library() -> None:
    shadows = [
        name
        for name in modules()
        if any(part in sys.stdlib_module_names for part in _importable_names(Path(name)))
    ]
    assert shadows == []


def _importable_names(path: Path) -> tuple[str, ...]:
    """The folders, and the file where it stands alone: a module in a package shadows nothing."""
    return path.parts[:-1] or (path.stem,)


def test_the_product_waits_with_timeouts_that_keep_a_cancellation() -> None:
    # asyncio.wait_for of Python 3.11 forgets one that comes together with the answer.
    forgetful = [
        name
        for name, module in modules().items()
        if not name.startswith(("tests/", "scripts/"))
        and any(
            isinstance(node, ast.Attribute) and node.attr == "wait_for" for node in ast.walk(module)
        )
    ]
    assert forgetful == []


def test_the_architecture_page_names_every_folder() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = {name.split("/")[0] for name in tracked() if "/" in name} - {".ci"}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in page] == []


def test_every_package_folder_has_its_init_file() -> None:
    folders = {str(Path(name).parent) for name in modules()} - {"."}
    assert [one for one in sorted(folders) if f"{one}/__init__.py" not in modules()] == []


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    sizes = Counter(str(Path(name).parent) for name in modules())
    assert {folder: count for folder, count in sizes.items() if count > MODULES_MAX} == {}


def test_pages_stay_short() -> None:
    assert length("README.md") <= PAGE_LINES_MAX
    assert length("ARCHITECTURE.md") <= PAGE_LINES_MAX
    decisions = [name for name in tracked() if name.startswith("docs/decisions/")]
    assert [name for name in decisions if length(name) > DECISION_LINES_MAX] == []


def test_no_registry_address_and_no_path_of_a_machine_is_committed() -> None:
    pattern = re.compile(MACHINE_TRACES)
    found = []
    for name in tracked():
        if name in TRACES_ALLOWED:
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{name}:{number}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    assert found == []
