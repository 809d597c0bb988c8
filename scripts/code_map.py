"""The code map of ARCHITECTURE.md: what a package holds, and what it may import.

The first comes from the package's docstring, the second from import-linter's contracts of type
`layers`: a package may import another unless some contract has it in a lower or in the same line.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from scripts.sources import parse

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- code map: `make docs` -->", "<!-- end of the code map -->"
Layers = list[set[str]]


def render() -> str:
    """The whole page, with the map as the contracts are now."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{code_map()}\n{END}{after}"


def code_map() -> str:
    """Both tables: the packages from the top of the house down, and storage's rooms."""
    contracts = layers_contracts()
    house = max((one for one in contracts if not one["containers"]), key=_size)
    packages = [package for line in house["layers"] for package in sorted(line)]
    lines = ["| package | holds | may import |", "|---|---|---|"]
    lines += [
        f"| `{package.replace('.', '/')}/` | {promise(package)} | {_names(package, packages)} |"
        for package in packages
    ]
    for contract in contracts:
        for container in contract["containers"]:
            lines += ["", f"| room of `{container.replace('.', '/')}/` | holds |", "|---|---|"]
            lines += [
                f"| `{room}/` | {promise(f'{container}.{room}')} |"
                for line in contract["layers"]
                for room in sorted(line)
            ]
    return "\n".join(lines)


def layers_contracts() -> list[dict[str, Any]]:
    """Each with its lines as sets, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [
        {
            "containers": contract.get("containers", []),
            "layers": [{name.strip() for name in line.split("|")} for line in contract["layers"]],
        }
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]


def may_import(package: str, other: str) -> bool:
    """Whether every contract that names both has `other` in a lower line."""
    return package != other and all(
        _line(contract["layers"], package) < _line(contract["layers"], other)
        for contract in layers_contracts()
        if not contract["containers"] and {package, other} <= set().union(*contract["layers"])
    )


def promise(package: str) -> str:
    """The first line of the package's docstring, without its full stop."""
    module = parse(ROOT / package.replace(".", "/") / "__init__.py")
    return str(ast.get_docstring(module)).splitlines()[0].rstrip(".")


def _names(package: str, packages: list[str]) -> str:
    allowed = [other for other in packages if may_import(package, other)]
    if len(allowed) == len(packages) - 1:
        return "everything"
    return (
        ", ".join(f"`{other.removeprefix('holdfast.')}`" for other in allowed) or "nothing of ours"
    )


def _line(layers: Layers, package: str) -> int:
    return next(number for number, line in enumerate(layers) if package in line)


def _size(contract: dict[str, Any]) -> int:
    return sum(len(line) for line in contract["layers"])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
