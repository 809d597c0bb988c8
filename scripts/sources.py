"""Python files as syntax trees, read so that nothing else can run in between."""

import ast
import gc
from pathlib import Path


def parse(path: Path) -> ast.Module:
    """The tree of a file.

    The collector waits: a finaliser that fails in the middle has its traceback formatted, which
    parses too, and Python 3.11 then gives up the outer one with a SystemError.
    """
    source = path.read_text(encoding="utf-8")
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collecting:
            gc.enable()
