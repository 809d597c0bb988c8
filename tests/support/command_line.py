"""`holdfast …` in this process, since a new one would import for a second each time."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from holdfast.cli.main import main


def run_here(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; the keyboard is at its end."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, Path("/dev/null").open() as nothing:
        patch.setattr("sys.argv", ["holdfast", *arguments])
        patch.setattr("sys.stdin", nothing)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()
